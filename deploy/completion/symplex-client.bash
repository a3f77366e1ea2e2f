# bash completion of symplex-client; printed by 'symplex-client help completion'
_symplex_client() {
    local current="${COMP_WORDS[COMP_CWORD]}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="compile tune run verify determinism explain optimize sharding grad prove egraph extract plot module ptx cache jobs search session status ping shutdown doctor targets ops rules worker version help"
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
        return
    fi
    if [ "$COMP_CWORD" -eq 2 ]; then
        case "${COMP_WORDS[1]} " in
            "plot "*) words="roofline" ;;
            "module "*) words="show dump check" ;;
            "ptx "*) words="assemble show run" ;;
            "cache "*) words="ls show verify stats evict rm" ;;
        esac
    fi
    if [ -z "$words" ]; then
        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
            "tune fit") words="--help --json --socket --no-daemon --daemon-only --target --threads --times" ;;
            "plot roofline") words="--help --json --socket --target --device --dim --output --times" ;;
            "module show") words="--help --json --socket" ;;
            "module dump") words="--help --json --output" ;;
            "module check") words="--help --json --socket" ;;
            "ptx assemble") words="--help --json --target --output --with --toolkit --on --shared" ;;
            "ptx show") words="--help --json --on --shared" ;;
            "ptx run") words="--help --json --output --on --shared --kernel --grid --cluster --block --arg --seed --lazy --fuel" ;;
            "cache ls") words="--help --json --socket --limit" ;;
            "cache show") words="--help --json --socket" ;;
            "cache verify") words="--help --json --socket" ;;
            "cache stats") words="--help --json --socket" ;;
            "cache evict") words="--help --json --socket --all" ;;
            "cache rm") words="--help --json --socket" ;;
            "search show") words="--help --json --socket" ;;
            "search wait") words="--help --json --socket --output --point --onnx --proof" ;;
            "search result") words="--help --json --socket --output --point --onnx --proof" ;;
            "search cancel") words="--help --json --socket" ;;
            "search extend") words="--help --json --socket --budget" ;;
            "search remove") words="--help --json --socket" ;;
            "session ls") words="--help --json --socket" ;;
            "session show") words="--help --json --socket" ;;
            "targets show") words="--help --json --device" ;;
            "compile "*) words="--help --json --socket --no-daemon --daemon-only --target --device --dim --gemm --attention --softmax --norm --dtype --batch --layout --epilogue --print-program --output --objective --no-weights --exact --batch-invariant --approximate --range --disable-rule --refresh --verify-flops --verify-memory --assembler --times" ;;
            "tune "*) words="--help --json --socket --no-daemon --daemon-only --target --dim --gemm --attention --softmax --norm --dtype --batch --layout --epilogue --output --objective --exact --batch-invariant --approximate --range --disable-rule --verify-flops --verify-memory --repeat --threads --times" ;;
            "run "*) words="--help --json --socket --dim --output --random --input --weight --check --verify-memory --repeat --graph --steps --state-in --state-out --threads --all" ;;
            "verify "*) words="--help --json --socket --random --verify-flops --verify-memory --all" ;;
            "determinism "*) words="--help --json --random --fuel" ;;
            "explain "*) words="--help --json --socket --all" ;;
            "optimize "*) words="--help --json --socket --no-daemon --daemon-only --target --device --dim --gemm --attention --softmax --norm --dtype --batch --layout --epilogue --print-program --output --objective --point --budget --background --onnx --proof --exact --batch-invariant --approximate --range --disable-rule" ;;
            "sharding "*) words="--help --json --target --device --dim --output" ;;
            "grad "*) words="--help --json --gemm --attention --softmax --norm --dtype --batch --layout --epilogue --output --wrt --of" ;;
            "prove "*) words="--help --json --socket --from --to" ;;
            "egraph "*) words="--help --json --socket --target --gemm --attention --softmax --norm --dtype --batch --layout --epilogue --print-program --output --exact --approximate --range --part" ;;
            "extract "*) words="--help --json --fuel --seconds" ;;
            "jobs "*) words="--help --json --socket" ;;
            "search "*) words="--help --json --socket" ;;
            "session "*) words="--help --json --socket" ;;
            "status "*) words="--help --json --socket" ;;
            "ping "*) words="--help --json --socket" ;;
            "shutdown "*) words="--help --json --socket --fast" ;;
            "doctor "*) words="--help --json --socket" ;;
            "targets "*) words="--help --json --device" ;;
            "ops "*) words="--help --json" ;;
            "rules "*) words="--help --json" ;;
            "worker "*) words="--help --json" ;;
            "version "*) words="--help --json" ;;
            "help "*) words="--help --json" ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -f -W "$words" -- "$current")
}
complete -o filenames -F _symplex_client symplex-client
