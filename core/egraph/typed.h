/* typed.h - are the sides of a rule well-typed, as far as their text says? Asked while the project is built
 * (gen_rules.c), so that a table with a type error ends the build; shapes are found out by the tests, which
 * draw programs (rule_trial.h). */
#ifndef SX_CORE_EGRAPH_TYPED_H
#define SX_CORE_EGRAPH_TYPED_H
#include "core/egraph/pattern.h"

/* Operands: as many as the operation has. Attributes: on the right side where the operation has some, there
 * only, and named by an operation of the left side that has the same. Element types: some assignment of bool,
 * integers and floats to all classes fits every operation of both sides, and both roots are of one. `right`
 * NULL: a C function.
 *   errors   SX_INPUT rule, side, operation, what does not fit; SX_NOMEM */
sx_code sx_rule_typed(sx_ctx *cx, const char *rule_name, const sx_pattern *left,
                      const sx_pattern *right);
#endif
