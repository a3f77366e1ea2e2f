#!/usr/bin/env python3
"""The other side of `symplex-bench egraph`: the same rules and terms in egglog. usage: peer_egglog.py
math-micro ITERATIONS | ac LEAVES. Prints "name version; processor seconds; tuples of operations; peak bytes",
or fails where the package is missing."""
import importlib.metadata
import resource
import sys
import time

try:
    import egglog.bindings
except ImportError as error:
    sys.exit(f"{error}: no peer to compare with; run deploy/install-deps.sh")

MICRO = """
(datatype T (Num i64) (Var String) (Add T T) (Sub T T) (Mul T T) (Div T T) (Pow T T) (D T T) (I T T)
            (Ln T) (Sqrt T) (Sin T) (Cos T))
(rewrite (Add a b) (Add b a)) (rewrite (Mul a b) (Mul b a))
(rewrite (Add a (Add b c)) (Add (Add a b) c)) (rewrite (Mul a (Mul b c)) (Mul (Mul a b) c))
(rewrite (Sub a b) (Add a (Mul (Num -1) b)))
(rewrite (Add a (Num 0)) a) (rewrite (Mul a (Num 0)) (Num 0)) (rewrite (Mul a (Num 1)) a)
(rewrite (Sub a a) (Num 0))
(rewrite (Mul a (Add b c)) (Add (Mul a b) (Mul a c))) (rewrite (Add (Mul a b) (Mul a c)) (Mul a (Add b c)))
(rewrite (Mul (Pow a b) (Pow a c)) (Pow a (Add b c)))
(rewrite (Pow x (Num 1)) x) (rewrite (Pow x (Num 2)) (Mul x x))
(rewrite (D x (Add a b)) (Add (D x a) (D x b)))
(rewrite (D x (Mul a b)) (Add (Mul a (D x b)) (Mul b (D x a))))
(rewrite (D x (Sin x)) (Cos x)) (rewrite (D x (Cos x)) (Mul (Num -1) (Sin x)))
(rewrite (I (Num 1) x) x) (rewrite (I (Cos x) x) (Sin x)) (rewrite (I (Sin x) x) (Mul (Num -1) (Cos x)))
(rewrite (I (Add f g) x) (Add (I f x) (I g x))) (rewrite (I (Sub f g) x) (Sub (I f x) (I g x)))
(rewrite (I (Mul a b) x) (Sub (Mul a (I b x)) (I (Mul (D x a) (I b x)) x)))
"""
MICRO_TERMS = """
(I (Ln (Var "x")) (Var "x"))
(I (Add (Var "x") (Cos (Var "x"))) (Var "x"))
(I (Mul (Cos (Var "x")) (Var "x")) (Var "x"))
(D (Var "x") (Add (Num 1) (Mul (Num 2) (Var "x"))))
(D (Var "x") (Sub (Pow (Var "x") (Num 3)) (Mul (Num 7) (Pow (Var "x") (Num 2)))))
(Add (Mul (Var "y") (Add (Var "x") (Var "y"))) (Sub (Add (Var "x") (Num 2)) (Add (Var "x") (Var "x"))))
(Div (Num 1) (Sub (Div (Add (Num 1) (Sqrt (Var "five"))) (Num 2)) (Div (Sub (Num 1) (Sqrt (Var "five"))) (Num 2))))
"""
SUM = """
(datatype T (Num i64) (Add T T))
(rewrite (Add a b) (Add b a))
(rewrite (Add a (Add b c)) (Add (Add a b) c)) (rewrite (Add (Add a b) c) (Add a (Add b c)))
"""


def main():
    case, number = sys.argv[1], int(sys.argv[2])
    if case == "math-micro":
        rules, terms, run = MICRO, MICRO_TERMS, f"(run {number})"
    else:
        terms = f"(Num {number})"
        for leaf in range(number - 1, 0, -1):
            terms = f"(Add (Num {leaf}) {terms})"
        rules, run = SUM, "(run 1000)"
    graph = egglog.bindings.EGraph()
    graph.run_program(*graph.parse_program(rules))
    start = time.process_time()
    graph.run_program(*graph.parse_program(terms + run))
    seconds = time.process_time() - start
    sizes = graph.run_program(*graph.parse_program("(print-size)"))[0]
    text = repr(sizes)
    tuples = sum(int(part.split(")")[0]) for part in text.split(", ")[1::2])
    version = importlib.metadata.version("egglog")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"egglog (python {version}); {seconds}; {tuples}; {peak}")


main()
