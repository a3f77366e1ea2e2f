/* nest.c - gradients of attention without scores in memory: contractions whose operand is an elementwise program of
 * one or two other contractions, as nested kernels (core/ir/fused.h).
 *
 * What they compute again is computed by others too, so readers do not matter here, and what was chosen need not be
 * what is read: weights are taken as e^(scores - logarithm of their sum), which rule softmax-logarithm offers where
 * weights are contracted along their rows. Programs without such weights are not looked at further. */
#include "core/optimize/fuser.h"

#include <string.h>

#define STEPS_MAX 48u /* to one factor */

/* A factor while it grows. */
typedef struct {
    sx_fuser_kernel kernel;
    uint32_t class_;
    uint32_t logarithm; /* the class of the logarithms of sums, or SX_EG_NONE */
} factor;

static bool is_live(const sx_fuser *f, uint32_t n, sx_op op)
{
    return f->t->eg.node[n].dead == 0 && sx_tensors_op(f->t, n) == op;
}

/* The first member of a class with this operation, or SX_EG_NONE. */
static uint32_t member(const sx_fuser *f, uint32_t class_, sx_op op)
{
    uint32_t n = class_; /* a class is named by one of its members */
    do {
        if (is_live(f, n, op)) {
            return n;
        }
        n = sx_eg_member_next(&f->t->eg, n);
    } while (n != class_);
    return SX_EG_NONE;
}

/* If a node is e^(x - logarithm of the sum of a row), the online sum that is the logarithm, else SX_EG_NONE. */
static uint32_t logarithm_of(const sx_fuser *f, uint32_t n)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t low =
        is_live(f, n, SX_OP_EXP) ? member(f, sx_eg_child(eg, n, 0), SX_OP_SUBTRACT) : SX_EG_NONE;
    uint32_t repeat =
        low != SX_EG_NONE ? member(f, sx_eg_child(eg, low, 1), SX_OP_BROADCAST) : SX_EG_NONE;
    uint32_t sum =
        repeat != SX_EG_NONE ? member(f, sx_eg_child(eg, repeat, 0), SX_OP_ONLINE_DOT) : SX_EG_NONE;
    bool found = sum != SX_EG_NONE && eg->node[sum].arity == 1 &&
                 sx_tensors_attr(f->t, sum)->form == 2 &&
                 sx_eg_child(eg, sum, 0) == sx_eg_child(eg, low, 0);
    return found ? sum : SX_EG_NONE;
}

static bool is_step(sx_op op)
{
    return sx_op_info_of(op)->op_class == SX_OPCLASS_VIEW || op == SX_OP_DOT_GENERAL ||
           (sx_op_is_elementwise(op) && !sx_op_is_composite(op));
}

/* The member of a class that is weights by the logarithm of their sum, which is told; or SX_EG_NONE. */
static uint32_t weights_form(const sx_fuser *f, uint32_t class_, uint32_t *logarithm)
{
    uint32_t n = class_;
    do {
        uint32_t sum = logarithm_of(f, n);
        if (sum != SX_EG_NONE) {
            *logarithm = sum;
            return n;
        }
        n = sx_eg_member_next(&f->t->eg, n);
    } while (n != class_);
    return SX_EG_NONE;
}

/* Is a node a product with such weights? */
static bool is_weighted(const sx_fuser *f, uint32_t n)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t logarithm;
    return is_live(f, n, SX_OP_MULTIPLY) &&
           (weights_form(f, sx_eg_child(eg, n, 0), &logarithm) != SX_EG_NONE ||
            weights_form(f, sx_eg_child(eg, n, 1), &logarithm) != SX_EG_NONE);
}

/* How a class is made inside: as weights by the logarithm of their sum, which is told; as a product with such; as it
 * was chosen; or, where it was not, as one of its members. Or SX_EG_NONE. */
static uint32_t inner_form(const sx_fuser *f, uint32_t class_, uint32_t *logarithm)
{
    uint32_t n = class_, first = SX_EG_NONE, chosen = f->choice[class_];
    uint32_t weights = weights_form(f, class_, logarithm);
    if (weights != SX_EG_NONE) {
        return weights;
    }
    do {
        bool usable = f->t->eg.node[n].dead == 0 && is_step(sx_tensors_op(f->t, n));
        if (is_weighted(f, n)) {
            return n;
        }
        first = first == SX_EG_NONE && usable ? n : first;
        n = sx_eg_member_next(&f->t->eg, n);
    } while (n != class_);
    return chosen != SX_EG_NONE && is_step(sx_tensors_op(f->t, chosen)) ? chosen : first;
}

/* Has a class as many elements as the factor? Then it is a tensor of scores. */
static bool is_whole(const sx_fuser *f, uint32_t class_, uint32_t whole)
{
    sx_dim a, b;
    return sx_type_elements(sx_tensors_type(f->t, class_), &a) &&
           sx_type_elements(sx_tensors_type(f->t, whole), &b) && sx_dim_equal(a, b);
}

/* One step on argument a: a value, a view, equal arguments, or what is elementwise over all scores or made of
 * positions. */
static sx_code step(sx_fuser *f, factor *x, uint32_t a, bool *taken)
{
    sx_fuser_kernel *k = &x->kernel, inner;
    uint32_t class_ = k->child[a];
    SX_TRY(sx_fuser_value(f, k, a, taken));
    SX_TRY(*taken ? SX_OK : sx_fuser_same(f, k, a, taken));
    if (*taken) {
        return SX_OK;
    }
    uint32_t made = sx_fuser_positions(f, class_, SX_FUSER_POSITIONS_DEPTH);
    uint32_t n = inner_form(f, class_, &x->logarithm);
    if (made != SX_EG_NONE) {
        return sx_fuser_inline(f, k, a, made, taken);
    }
    if (n == SX_EG_NONE || sx_tensors_fact(f->t, class_)->is_weight != 0) {
        return SX_OK;
    }
    SX_TRY(sx_fuser_view(f, k, a, n, taken));
    if (*taken || !sx_op_is_elementwise(sx_tensors_op(f->t, n)) ||
        !is_whole(f, class_, x->class_)) {
        return SX_OK;
    }
    bool lifted;
    SX_TRY(sx_fuser_lift(f, n, &inner, &lifted));
    return lifted ? sx_fuser_inline(f, k, a, inner.node, taken) : SX_OK;
}

/* The contraction that argument a is, or SX_EG_NONE. */
static uint32_t contraction_of(const sx_fuser *f, const sx_fuser_kernel *k, uint32_t a)
{
    uint32_t logarithm, n = inner_form(f, k->child[a], &logarithm);
    return n != SX_EG_NONE && sx_tensors_op(f->t, n) == SX_OP_DOT_GENERAL ? n : SX_EG_NONE;
}

/* The first argument from `a` on that is a contraction and as large as the scores, computed inside. */
static sx_code add_contraction(sx_fuser *f, sx_fuser_kernel *k, uint32_t whole, bool *taken)
{
    *taken = false;
    for (uint32_t a = 0; a < k->count && !*taken; a++) {
        uint32_t n = contraction_of(f, k, a);
        sx_fuser_kernel dot;
        bool lifted = false;
        if (n != SX_EG_NONE && is_whole(f, k->child[a], whole)) {
            SX_TRY(sx_fuser_lift(f, n, &dot, &lifted));
        }
        uint32_t bare = lifted ? dot.node : SX_EG_NONE;
        if (lifted) {
            SX_TRY(sx_fuser_grow(f, &dot, 0));
            SX_TRY(sx_fuser_inline(f, k, a, dot.node, taken));
        }
        if (lifted && !*taken && dot.node != bare) { /* without views that keep heads apart */
            SX_TRY(sx_fuser_inline(f, k, a, bare, taken));
        }
    }
    return SX_OK;
}

/* The elementwise program of a class with one contraction inside; *ok false: it is none. */
static sx_code make_factor(sx_fuser *f, uint32_t class_, factor *x, bool *ok)
{
    *x = (factor){.class_ = class_, .logarithm = SX_EG_NONE};
    uint32_t n = inner_form(f, class_, &x->logarithm);
    *ok = false;
    if (n == SX_EG_NONE) {
        return SX_OK;
    }
    SX_TRY(sx_fuser_lift(f, n, &x->kernel, ok));
    if (!*ok || sx_tensors_op(f->t, n) == SX_OP_DOT_GENERAL) {
        return *ok ? sx_fuser_grow(f, &x->kernel, 0) : SX_OK;
    }
    uint32_t steps = 0;
    for (uint32_t a = 0; a < x->kernel.count && steps < STEPS_MAX;) {
        bool taken;
        SX_TRY(step(f, x, a, &taken));
        steps += taken ? 1 : 0;
        a += taken ? 0 : 1;
    }
    return add_contraction(f, &x->kernel, class_, ok);
}

/* The kernel with operands of contractions that were widened read as they lie in memory. */
static sx_code add_narrow(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    sx_fuser_kernel narrow = *k;
    uint32_t logarithm;
    for (uint32_t a = 0; a < narrow.count;) {
        uint32_t n = inner_form(f, narrow.child[a], &logarithm);
        bool taken = n != SX_EG_NONE && sx_tensors_op(f->t, n) == SX_OP_CONVERT;
        sx_fuser_kernel convert;
        if (taken) {
            SX_TRY(sx_fuser_lift(f, n, &convert, &taken));
        }
        if (taken) {
            SX_TRY(sx_fuser_inline(f, &narrow, a, convert.node, &taken));
        }
        a += taken ? 0 : 1;
    }
    SX_TRY(sx_fuser_grow(f, &narrow, 0));
    sx_fuser_keep(list, narrow.node);
    return SX_OK;
}

/* The logarithms of sums, by an online sum with its scores inside. */
static sx_code add_logarithm(sx_fuser *f, uint32_t n)
{
    sx_tensors *t = f->t;
    sx_fuser_forms *list = &f->form[sx_eg_find(&t->eg, n)];
    sx_fuser_kernel k = {.node = n, .count = 1, .child = {sx_eg_child(&t->eg, n, 0)}};
    const sx_fuse_step lift = {SX_RULE_LIFT, n, 1, {0}};
    uint32_t result;
    bool taken;
    factor x;
    if (!f->enabled[SX_RULE_LIFT]) {
        return SX_OK;
    }
    if (!sx_fuse_steps_find(f->steps, &lift, &result)) {
        sx_attr attr;
        sx_code code =
            sx_fused_lift_online(&f->scratch, sx_tensors_attr(t, n), sx_tensors_type(t, k.child[0]),
                                 1, sx_tensors_type(t, n), &attr);
        SX_TRY(sx_fuser_remember(f, &lift, code, true, &attr, &result));
    }
    SX_TRY(sx_fuser_advance(f, &k, result, k.child, 1, SX_EG_NONE, SX_RULE_LIFT, &taken));
    if (taken) {
        SX_TRY(make_factor(f, k.child[0], &x, &taken));
    }
    if (taken) {
        SX_TRY(sx_fuser_inline(f, &k, 0, x.kernel.node, &taken));
    }
    if (taken) {
        SX_TRY(sx_fuser_grow(f, &k, 0));
        sx_fuser_keep(list, k.node);
        SX_TRY(add_narrow(f, &k, list));
    }
    return SX_OK;
}

static bool is_factor(const sx_body *body, uint32_t a)
{
    bool found = false;
    for (uint32_t i = 0; i < body->instr_count; i++) {
        const sx_instr *dot = &body->instr[i];
        const uint32_t operand[2] = {dot->x, dot->y};
        for (uint32_t k = 0; k < 2 && dot->kind == SX_BODY_DOT; k++) {
            found = found ||
                    (body->instr[operand[k]].kind == SX_BODY_ARG && body->instr[operand[k]].x == a);
        }
    }
    return found;
}

bool sx_fuser_has_logarithms(const sx_tensors *t)
{
    bool found = false;
    for (uint32_t n = 0; n < t->eg.node_count && !found; n++) {
        found = t->eg.node[n].op == SX_OP_ONLINE_DOT && t->eg.node[n].arity == 1 &&
                sx_tensors_attr(t, n)->form == 2;
    }
    return found;
}

sx_code sx_fuser_nest(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    SX_ASSERT(sx_body_kernel_kind(k->attr->body) == SX_KERNEL_DOT);
    for (uint32_t a = 0; a < k->count; a++) {
        sx_fuser_kernel nested = *k;
        factor x;
        bool taken = false;
        if (!f->logarithms || !f->enabled[SX_RULE_FUSE_NESTED] || !is_factor(k->attr->body, a)) {
            continue;
        }
        SX_TRY(make_factor(f, k->child[a], &x, &taken));
        if (!taken || x.logarithm == SX_EG_NONE) {
            continue;
        }
        SX_TRY(sx_fuser_inline(f, &nested, a, x.kernel.node, &taken));
        if (!taken) {
            continue;
        }
        bool more;
        SX_TRY(add_contraction(f, &nested, x.class_, &more));
        SX_TRY(sx_fuser_grow(f, &nested, 0));
        sx_fuser_keep(list, nested.node);
        SX_TRY(add_narrow(f, &nested, list));
        SX_TRY(add_logarithm(f, x.logarithm));
    }
    return SX_OK;
}
