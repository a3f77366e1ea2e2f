#include "core/optimize/fuser.h"

#include <string.h>

#include "core/base/rewind.h"

#define SCRATCH_BYTES ((size_t)64 << 20)
#define STEP_WORK \
    64u /* of a step on a small body; numbering values goes with the square of its length */

static sx_code pair(sx_fuser *f, uint32_t from, uint32_t to, uint32_t producer, uint32_t rule)
{
    sx_fuse_pairs *p = f->pairs;
    f->count[rule]++;
    SX_TRY(sx_grow(f->cx, (void **)&p->word, &p->capacity, p->count + 4, sizeof(uint32_t)));
    p->word[p->count++] = from;
    p->word[p->count++] = to;
    p->word[p->count++] = producer;
    p->word[p->count++] = rule;
    return SX_OK;
}

static sx_fuser_kernel kernel_of(const sx_fuser *f, uint32_t node)
{
    sx_fuser_kernel k = {.node = node, .attr = sx_tensors_attr(f->t, node)};
    k.count = f->t->eg.node[node].arity;
    SX_ASSERT(k.count <= SX_FUSED_ARGS_MAX && k.attr->body != NULL);
    for (uint32_t a = 0; a < k.count; a++) {
        k.child[a] = sx_eg_child(&f->t->eg, node, a);
    }
    return k;
}

static sx_kernel_kind kind_of(const sx_fuser *f, uint32_t node)
{
    return sx_body_kernel_kind(sx_tensors_attr(f->t, node)->body);
}

/* The kernel, with `producer` (or SX_EG_NONE) inside, becomes the one with this attribute and these children,
 * if it is well-typed and of the same type. */
sx_code sx_fuser_advance(sx_fuser *f, sx_fuser_kernel *k, uint32_t attr, const uint32_t *child,
                         uint32_t count, uint32_t producer, uint32_t rule, bool *taken)
{
    SX_ASSERT(k->node < f->t->eg.node_count && count <= SX_FUSED_ARGS_MAX);
    uint32_t node;
    *taken = false;
    if (attr == SX_FUSE_NO_STEP) {
        return SX_OK;
    }
    SX_TRY(sx_tensors_add_interned(f->cx, f->t, SX_OP_FUSED, attr, child, count, &node));
    if (node == SX_EG_NONE ||
        sx_tensors_fact(f->t, node)->type != sx_tensors_fact(f->t, k->node)->type) {
        return SX_OK;
    }
    k->attr = f->t->attrs->attr[attr];
    f->work += STEP_WORK + (uint64_t)k->attr->body->instr_count * k->attr->body->instr_count;
    SX_TRY(pair(f, k->node, node, producer, rule));
    k->node = node;
    memmove(k->child, child, count * sizeof(*child));
    k->count = count;
    *taken = true;
    return SX_OK;
}

/* What came of a step that was not tried before: the attribute that was made, none where `ok` is false or the code
 * means "not this one". */
sx_code sx_fuser_remember(sx_fuser *f, const sx_fuse_step *step, sx_code code, bool ok,
                          const sx_attr *attr, uint32_t *result)
{
    SX_ASSERT(step->rule < SX_RULE_COUNT);
    *result = SX_FUSE_NO_STEP;
    if (code == SX_OK && ok) {
        sx_attr_id id;
        SX_ASSERT(attr->present == (SX_A(type) | SX_A(body))); /* it has one spelling */
        SX_TRY(sx_attr_intern(f->cx, f->t->attrs, attr, &id));
        *result = id.i;
    } else if (code == SX_UNIMPLEMENTED || code == SX_INPUT) {
        sx_ctx_reset_error(&f->scratch);
    } else if (code != SX_OK) {
        return SX_FAIL(f->cx, code, "fusion: %s", f->scratch.error.text);
    }
    sx_arena_rewind(&f->scratch.arena); /* what came of the step is interned */
    return sx_fuse_steps_put(f->cx, f->steps, step, *result);
}

static uint32_t attr_of(const sx_fuser *f, uint32_t node)
{
    return f->t->eg.node[node].attr;
}

static uint32_t type_of(const sx_fuser *f, uint32_t class_)
{
    return sx_tensors_fact(f->t, class_)->type;
}

static uint32_t without(const sx_fuser_kernel *k, uint32_t a, uint32_t *child)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < k->count; i++) {
        if (i != a) {
            child[count++] = k->child[i];
        }
    }
    return count;
}

sx_code sx_fuser_value(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, bool *taken)
{
    SX_ASSERT(a < k->count);
    *taken = false;
    const sx_fact *fact = sx_tensors_fact(f->t, k->child[a]);
    if (fact->has_value == 0 || !f->enabled[SX_RULE_FUSE_VALUE]) {
        return SX_OK;
    }
    sx_fuse_step step = {SX_RULE_FUSE_VALUE, attr_of(f, k->node), a, {0}};
    uint32_t result;
    memcpy(step.with, &fact->value, sizeof(fact->value));
    if (!sx_fuse_steps_find(f->steps, &step, &result)) {
        sx_attr attr;
        sx_code code = sx_fused_inline_splat(&f->scratch, k->attr, a, fact->value, &attr);
        SX_TRY(sx_fuser_remember(f, &step, code, true, &attr, &result));
    }
    uint32_t child[SX_FUSED_ARGS_MAX];
    uint32_t count = without(k, a, child);
    return sx_fuser_advance(f, k, result, child, count, SX_EG_NONE, SX_RULE_FUSE_VALUE, taken);
}

static bool is_view(sx_op op)
{
    return sx_op_info_of(op)->op_class == SX_OPCLASS_VIEW;
}

/* The view that a class is: of one that was not chosen, because attention was not, a view of what was. */
static uint32_t view_form(const sx_fuser *f, uint32_t class_)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t chosen = f->choice[class_];
    if (chosen != SX_EG_NONE) {
        return chosen;
    }
    uint32_t n = class_; /* a class is named by one of its members */
    do {
        if (eg->node[n].dead == 0 && is_view(sx_tensors_op(f->t, n)) &&
            f->choice[sx_eg_child(eg, n, 0)] != SX_EG_NONE) {
            return n;
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_);
    return SX_EG_NONE;
}

sx_code sx_fuser_view(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, uint32_t producer, bool *taken)
{
    SX_ASSERT(a < k->count);
    *taken = false;
    if (producer == SX_EG_NONE || !is_view(sx_tensors_op(f->t, producer)) ||
        !f->enabled[SX_RULE_FUSE_VIEW]) {
        return SX_OK;
    }
    uint32_t source = sx_eg_child(&f->t->eg, producer, 0);
    sx_op op = sx_tensors_op(f->t, producer);
    uint32_t view = attr_of(f, producer), result;
    const sx_fuse_step step = {SX_RULE_FUSE_VIEW,
                               attr_of(f, k->node),
                               a,
                               {op, view, type_of(f, source), type_of(f, k->child[a])}};
    if (!sx_fuse_steps_find(f->steps, &step, &result)) {
        sx_attr attr;
        bool ok = false;
        sx_code code = sx_fused_absorb_view(
            &f->scratch, k->attr, a, op, sx_tensors_attr(f->t, producer),
            sx_tensors_type(f->t, source), sx_tensors_type(f->t, k->child[a]), &attr, &ok);
        SX_TRY(sx_fuser_remember(f, &step, code, ok, &attr, &result));
    }
    uint32_t child[SX_FUSED_ARGS_MAX];
    memcpy(child, k->child, sizeof(child));
    child[a] = source;
    return sx_fuser_advance(f, k, result, child, k->count, producer, SX_RULE_FUSE_VIEW, taken);
}

sx_code sx_fuser_same(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, bool *taken)
{
    SX_ASSERT(a < k->count);
    *taken = false;
    for (uint32_t b = 0; b < a && !*taken && f->enabled[SX_RULE_FUSE_SAME]; b++) {
        if (k->child[b] != k->child[a]) {
            continue;
        }
        const sx_fuse_step step = {SX_RULE_FUSE_SAME, attr_of(f, k->node), a, {b}};
        uint32_t result;
        if (!sx_fuse_steps_find(f->steps, &step, &result)) {
            sx_attr attr;
            bool ok = false;
            sx_code code = sx_fused_merge_args(&f->scratch, k->attr, b, a, &attr, &ok);
            SX_TRY(sx_fuser_remember(f, &step, code, ok, &attr, &result));
        }
        uint32_t child[SX_FUSED_ARGS_MAX];
        uint32_t count = without(k, a, child);
        SX_TRY(sx_fuser_advance(f, k, result, child, count, SX_EG_NONE, SX_RULE_FUSE_SAME, taken));
    }
    return SX_OK;
}

/* Kernel `producer` computed inside `k` where argument a was read. */
sx_code sx_fuser_inline(sx_fuser *f, sx_fuser_kernel *k, uint32_t a, uint32_t producer, bool *taken)
{
    SX_ASSERT(a < k->count && producer < f->t->eg.node_count);
    *taken = false;
    sx_kernel_kind kind = kind_of(f, producer);
    bool is_scores =
        kind == SX_KERNEL_DOT && sx_body_kernel_kind(k->attr->body) == SX_KERNEL_ONLINE;
    sx_kernel_kind outer = sx_body_kernel_kind(k->attr->body);
    bool is_nested = kind == SX_KERNEL_DOT && (outer == SX_KERNEL_DOT || outer == SX_KERNEL_NESTED);
    uint32_t rule = kind == SX_KERNEL_MAP ? SX_RULE_FUSE_PRODUCER
                    : is_scores           ? SX_RULE_FUSE_SCORES
                    : is_nested           ? SX_RULE_FUSE_NESTED
                                          : SX_RULE_FUSE_EPILOGUE;
    sx_fuser_kernel inner = kernel_of(f, producer);
    if (!f->enabled[rule] || k->count - 1 + inner.count > SX_FUSED_ARGS_MAX) {
        return SX_OK;
    }
    const sx_fuse_step step = {
        rule, attr_of(f, k->node), a, {attr_of(f, producer), type_of(f, k->child[a])}};
    uint32_t result;
    if (!sx_fuse_steps_find(f->steps, &step, &result)) {
        sx_attr attr;
        bool ok = false;
        sx_code code = sx_fused_inline(&f->scratch, k->attr, a, inner.attr,
                                       sx_tensors_type(f->t, k->child[a]), &attr, &ok);
        SX_TRY(sx_fuser_remember(f, &step, code, ok, &attr, &result));
    }
    uint32_t child[SX_FUSED_ARGS_MAX];
    uint32_t count = without(k, a, child);
    memcpy(&child[count], inner.child, inner.count * sizeof(*child));
    return sx_fuser_advance(f, k, result, child, count + inner.count, producer, rule, taken);
}

/* The elementwise kernel of a class that may be computed by its readers, or SX_EG_NONE. One that reads nothing, as an
 * iota, is made of positions for less than it takes to read it. */
static uint32_t map_form(const sx_fuser *f, uint32_t class_, uint32_t readers_max)
{
    const sx_fuser_forms *list = &f->form[class_];
    bool reads = sx_tensors_fact(f->t, class_)->is_weight != 0 || f->readers[class_] > readers_max;
    for (uint32_t i = 0; i < list->count; i++) {
        const sx_body *body = sx_tensors_attr(f->t, list->node[i])->body;
        bool is_short = f->readers[class_] == 1 || body->instr_count <= SX_FUSE_REPEATED_MAX;
        if (sx_body_kernel_kind(body) == SX_KERNEL_MAP && is_short &&
            (!reads || body->arg_count == 0)) {
            return list->node[i];
        }
    }
    return SX_EG_NONE;
}

/* Takes every step that wins; elementwise producers with at most `readers_max` readers (0: none) are computed
 * in place. */
sx_code sx_fuser_grow(sx_fuser *f, sx_fuser_kernel *k, uint32_t readers_max)
{
    SX_ASSERT(k->node < f->t->eg.node_count);
    uint32_t a = 0;
    while (a < k->count) {
        bool taken;
        SX_TRY(sx_fuser_value(f, k, a, &taken));
        if (!taken) {
            SX_TRY(sx_fuser_view(f, k, a, view_form(f, k->child[a]), &taken));
        }
        if (!taken) {
            SX_TRY(sx_fuser_same(f, k, a, &taken));
        }
        uint32_t producer =
            taken || readers_max == 0 ? SX_EG_NONE : map_form(f, k->child[a], readers_max);
        if (producer != SX_EG_NONE) {
            SX_TRY(sx_fuser_inline(f, k, a, producer, &taken));
        }
        a += taken ? 0 : 1;
    }
    return SX_OK;
}

void sx_fuser_keep(sx_fuser_forms *list, uint32_t node)
{
    SX_ASSERT(list->count <= SX_FUSE_FORMS);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->node[i] == node) {
            return;
        }
    }
    if (list->count < SX_FUSE_FORMS) {
        list->node[list->count++] = node;
    }
}

/* Attention in one kernel that reads bf16 or f16 as they lie, found in a pass before. */
static bool is_narrow_attention(const sx_fuser *f, uint32_t n)
{
    const sx_eg_node *node = &f->t->eg.node[n];
    bool narrow = false;
    if (node->dead != 0 || sx_tensors_op(f->t, n) != SX_OP_FUSED ||
        kind_of(f, n) != SX_KERNEL_ONLINE || sx_tensors_attr(f->t, n)->body->inner == 0) {
        return false;
    }
    for (uint32_t k = 0; k < node->arity; k++) {
        sx_dtype dtype = sx_tensors_type(f->t, sx_eg_child(&f->t->eg, n, k))->dtype;
        narrow = narrow || dtype == SX_BF16 || dtype == SX_F16;
    }
    return narrow;
}

uint32_t sx_fuser_positions(const sx_fuser *f, uint32_t class_, uint32_t depth)
{
    SX_ASSERT(class_ < f->t->eg.node_count);
    const sx_fuser_forms *list = &f->form[class_];
    for (uint32_t i = 0; i < list->count && sx_tensors_fact(f->t, class_)->is_weight != 0; i++) {
        uint32_t node = list->node[i], arity = f->t->eg.node[node].arity;
        const sx_body *body = sx_tensors_attr(f->t, node)->body;
        bool made = sx_body_kernel_kind(body) == SX_KERNEL_MAP && arity <= (depth > 0 ? 2 : 0) &&
                    body->instr_count <= SX_FUSE_REPEATED_MAX;
        for (uint32_t k = 0; k < arity && made; k++) {
            uint32_t child = sx_eg_child(&f->t->eg, node, k);
            made = sx_fuser_positions(f, child, depth - 1) != SX_EG_NONE;
        }
        if (made) {
            return node;
        }
    }
    return SX_EG_NONE;
}

/* Attention of narrow floats, which matrix instructions multiply, with all that is made of positions computed in place;
 * it stands beside the one that reads it. Lanes gain nothing by that. */
static sx_code add_positions(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    sx_fuser_kernel joined = *k;
    bool any = false;
    if (!is_narrow_attention(f, k->node)) {
        return SX_OK;
    }
    for (uint32_t a = 0; a < joined.count;) {
        uint32_t producer = sx_fuser_positions(f, joined.child[a], SX_FUSER_POSITIONS_DEPTH);
        bool taken = false;
        if (producer != SX_EG_NONE) {
            SX_TRY(sx_fuser_inline(f, &joined, a, producer, &taken));
        }
        any = any || taken;
        a += taken ? 0 : 1;
    }
    if (any) {
        sx_fuser_keep(list, joined.node);
    }
    return SX_OK;
}

/* The kernel as an epilogue of each contraction or row kernel that only it reads. */
static sx_code add_epilogues(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    if (sx_body_kernel_kind(k->attr->body) != SX_KERNEL_MAP) {
        return SX_OK;
    }
    for (uint32_t a = 0; a < k->count; a++) {
        const sx_fuser_forms *producers = &f->form[k->child[a]];
        if (f->readers[k->child[a]] != 1 || sx_tensors_fact(f->t, k->child[a])->is_weight != 0) {
            continue;
        }
        for (uint32_t i = 0; i < producers->count; i++) {
            if (kind_of(f, producers->node[i]) == SX_KERNEL_MAP) {
                continue;
            }
            sx_fuser_kernel joined = *k;
            bool taken;
            SX_TRY(sx_fuser_inline(f, &joined, a, producers->node[i], &taken));
            if (taken) {
                SX_TRY(sx_fuser_grow(f, &joined, 0));
                sx_fuser_keep(list, joined.node);
            }
        }
    }
    return SX_OK;
}

/* The kernel, an online sum, with its scores computed inside. What stood between them and the sum was computed
 * in place before. */
static sx_code add_scores(sx_fuser *f, const sx_fuser_kernel *k, sx_fuser_forms *list)
{
    for (uint32_t a = 0; a < k->count; a++) {
        uint32_t class_ = k->child[a];
        const sx_fuser_forms *producers = &f->form[class_];
        if (f->readers[class_] != 1 || sx_tensors_fact(f->t, class_)->is_weight != 0) {
            continue;
        }
        for (uint32_t i = 0; i < producers->count; i++) {
            if (kind_of(f, producers->node[i]) != SX_KERNEL_DOT) {
                continue;
            }
            sx_fuser_kernel joined = *k;
            bool taken;
            SX_TRY(sx_fuser_inline(f, &joined, a, producers->node[i], &taken));
            if (taken) {
                SX_TRY(sx_fuser_grow(f, &joined, 0));
                sx_fuser_keep(list, joined.node);
                sx_fuser_kernel widened =
                    joined; /* queries, keys and values as they lie in memory */
                SX_TRY(sx_fuser_grow(f, &widened, SX_FUSE_READERS_MAX));
                sx_fuser_keep(list, widened.node);
                SX_TRY(add_positions(f, &widened, list));
            }
        }
    }
    return SX_OK;
}

/* One operation as a kernel: lifted, or as it is if it is one already. */
sx_code sx_fuser_lift(sx_fuser *f, uint32_t n, sx_fuser_kernel *k, bool *ok)
{
    SX_ASSERT(n < f->t->eg.node_count);
    *ok = false;
    sx_tensors *t = f->t;
    sx_op op = sx_tensors_op(t, n);
    if (op == SX_OP_FUSED) {
        *k = kernel_of(f, n);
        *ok = true;
        return SX_OK;
    }
    uint32_t arity = t->eg.node[n].arity;
    if (op == SX_OP_PARAMETER || op == SX_OP_CONSTANT || op == SX_OP_RESHAPE ||
        arity > SX_FUSED_ARGS_MAX || !f->enabled[SX_RULE_LIFT]) {
        return SX_OK;
    }
    sx_type input[SX_FUSED_ARGS_MAX];
    for (uint32_t i = 0; i < arity; i++) {
        k->child[i] = sx_eg_child(&t->eg, n, i);
        input[i] = *sx_tensors_type(t, k->child[i]);
    }
    const sx_fuse_step step = {SX_RULE_LIFT, n, 0, {0}}; /* a node keeps its types */
    uint32_t result;
    if (!sx_fuse_steps_find(f->steps, &step, &result)) {
        sx_attr attr;
        sx_code code = sx_fused_lift(&f->scratch, op, sx_tensors_attr(t, n), input, arity,
                                     sx_tensors_type(t, n), &attr);
        SX_TRY(sx_fuser_remember(f, &step, code, true, &attr, &result));
    }
    k->node = n;
    return sx_fuser_advance(f, k, result, k->child, arity, SX_EG_NONE, SX_RULE_LIFT, ok);
}

/* A sum of weights without values, lifted as a row kernel before: as an online sum too, which can take in its
 * scores. */
static sx_code add_online(sx_fuser *f, uint32_t n, sx_fuser_forms *list)
{
    sx_tensors *t = f->t;
    if (sx_tensors_op(t, n) != SX_OP_ONLINE_DOT || t->eg.node[n].arity != 1 ||
        !f->enabled[SX_RULE_LIFT]) {
        return SX_OK;
    }
    sx_fuser_kernel k = {.node = n, .count = 1, .child = {sx_eg_child(&t->eg, n, 0)}};
    const sx_fuse_step step = {SX_RULE_LIFT, n, 1, {0}};
    uint32_t result;
    bool taken;
    if (!sx_fuse_steps_find(f->steps, &step, &result)) {
        sx_attr attr;
        sx_code code =
            sx_fused_lift_online(&f->scratch, sx_tensors_attr(t, n), sx_tensors_type(t, k.child[0]),
                                 1, sx_tensors_type(t, n), &attr);
        SX_TRY(sx_fuser_remember(f, &step, code, true, &attr, &result));
    }
    SX_TRY(sx_fuser_advance(f, &k, result, k.child, 1, SX_EG_NONE, SX_RULE_LIFT, &taken));
    if (taken) {
        SX_TRY(sx_fuser_grow(f, &k, 1));
        SX_TRY(add_scores(f, &k, list));
    }
    return SX_OK;
}

/* Is the class a tensor of two bytes that was widened, seen through views? */
#define VIEWS_MAX 8
static bool is_widened(const sx_fuser *f, uint32_t class_)
{
    for (uint32_t i = 0; i < VIEWS_MAX && view_form(f, class_) != SX_EG_NONE; i++) {
        uint32_t n = view_form(f, class_);
        sx_op op = sx_tensors_op(f->t, n);
        if (op != SX_OP_CONVERT && op != SX_OP_RESHAPE && !is_view(op)) {
            return false;
        }
        class_ = sx_eg_child(&f->t->eg, n, 0);
        sx_dtype from = sx_tensors_type(f->t, class_)->dtype;
        if (op == SX_OP_CONVERT) {
            return from == SX_BF16 || from == SX_F16;
        }
    }
    return false;
}

/* Attention whose values were widened, where contractions and a softmax were chosen: by itself an online sum reads its
 * scores from memory and is dear, with its scores and factors of two bytes inside it may be the cheapest. */
static sx_code add_attention(sx_fuser *f, uint32_t class_, sx_fuser_forms *list)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t chosen = f->choice[class_];
    uint32_t first = chosen != SX_EG_NONE ? chosen : class_, n = first;
    do {
        if (n != chosen && is_narrow_attention(f, n)) {
            sx_fuser_keep(list, n);
        }
        const sx_attr *attr = sx_tensors_attr(f->t, n);
        bool other = n != chosen && eg->node[n].dead == 0 &&
                     sx_tensors_op(f->t, n) == SX_OP_ONLINE_DOT && eg->node[n].arity == 2;
        if (other && attr->form == 1 && is_widened(f, sx_eg_child(eg, n, 1))) {
            sx_fuser_kernel k;
            bool ok;
            SX_TRY(sx_fuser_lift(f, n, &k, &ok));
            if (ok) {
                SX_TRY(sx_fuser_grow(f, &k, 1));
                SX_TRY(add_scores(f, &k, list));
            }
            return SX_OK;
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_OK;
}

/* The same where a contraction was chosen that attention is a view of: its result is turned, that of an online sum is
 * not. */
static sx_code add_turned_attention(sx_fuser *f, uint32_t class_)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t chosen = f->choice[class_];
    for (uint32_t n = sx_eg_member_next(eg, chosen); n != chosen; n = sx_eg_member_next(eg, n)) {
        bool view = eg->node[n].dead == 0 && is_view(sx_tensors_op(f->t, n));
        uint32_t behind = view ? sx_eg_child(eg, n, 0) : class_;
        if (view && f->choice[behind] == SX_EG_NONE) {
            SX_TRY(add_attention(f, behind, &f->form[behind]));
        }
    }
    return SX_OK;
}

/* Attention that was not chosen, rounded where it is written: by itself it gives f32, which lanes make. */
static sx_code add_rounded(sx_fuser *f, uint32_t class_)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t n = class_;
    do {
        bool converts = eg->node[n].dead == 0 && sx_tensors_op(f->t, n) == SX_OP_CONVERT;
        uint32_t of = converts ? sx_eg_child(eg, n, 0) : SX_EG_NONE;
        uint32_t count = converts && f->choice[of] == SX_EG_NONE ? f->form[of].count : 0;
        for (uint32_t i = 0; i < count; i++) {
            sx_fuser_kernel k;
            bool ok;
            SX_TRY(sx_fuser_lift(f, n, &k, &ok));
            SX_TRY(ok ? sx_fuser_inline(f, &k, 0, f->form[of].node[i], &ok) : SX_OK);
            if (ok) {
                SX_TRY(sx_fuser_grow(f, &k, 0));
                sx_fuser_keep(&f->form[class_], k.node);
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != class_);
    return SX_OK;
}

/* The same for what a class is a view of. */
static sx_code add_rounded_attention(sx_fuser *f, uint32_t class_)
{
    const sx_eg *eg = &f->t->eg;
    uint32_t chosen = f->choice[class_];
    SX_TRY(add_rounded(f, class_));
    for (uint32_t n = sx_eg_member_next(eg, chosen); n != chosen; n = sx_eg_member_next(eg, n)) {
        bool view = eg->node[n].dead == 0 && is_view(sx_tensors_op(f->t, n));
        uint32_t behind = view ? sx_eg_child(eg, n, 0) : class_;
        if (view && f->choice[behind] == SX_EG_NONE) {
            SX_TRY(add_rounded(f, behind));
        }
    }
    return SX_OK;
}

static sx_code fuse_class(sx_fuser *f, uint32_t class_)
{
    sx_fuser_kernel base;
    bool ok;
    sx_fuser_forms *list = &f->form[class_];
    SX_TRY(sx_fuser_lift(f, f->choice[class_], &base, &ok));
    if (!ok) {
        return SX_OK;
    }
    /* row kernels pay for what they compute in place: both ways stand */
    sx_fuser_kernel single = base;
    SX_TRY(sx_fuser_grow(f, &single, 1));
    sx_fuser_keep(list, single.node);
    if (sx_body_kernel_kind(base.attr->body) == SX_KERNEL_ROW) {
        sx_fuser_kernel bare = base;
        SX_TRY(sx_fuser_grow(f, &bare, 0));
        sx_fuser_keep(list, bare.node);
    }
    if (sx_body_kernel_kind(base.attr->body) == SX_KERNEL_ONLINE) {
        SX_TRY(add_scores(f, &single, list));
    }
    if (sx_body_kernel_kind(base.attr->body) == SX_KERNEL_MAP) {
        SX_TRY(add_rounded_attention(f, class_));
    }
    SX_TRY(add_online(f, f->choice[class_], list));
    SX_TRY(add_attention(f, class_, list));
    if (sx_body_kernel_kind(base.attr->body) == SX_KERNEL_DOT) {
        SX_TRY(sx_fuser_narrow(f, &base, list));
        SX_TRY(add_turned_attention(f, class_));
        SX_TRY(sx_fuser_nest(f, &single, list));
    }
    SX_TRY(add_epilogues(f, &single, list));
    sx_fuser_kernel repeated = single;
    SX_TRY(sx_fuser_grow(f, &repeated, SX_FUSE_READERS_MAX));
    if (repeated.node != single.node) {
        sx_fuser_keep(list, repeated.node);
        SX_TRY(add_epilogues(f, &repeated, list));
    }
    return SX_OK;
}

/* readers[c]: operations that read c, where a view of c counts as those that read the view. */
static void count_readers(sx_fuser *f, const uint32_t *order, uint32_t order_count,
                          const uint32_t *root, uint32_t root_count)
{
    const sx_eg *eg = &f->t->eg;
    for (uint32_t r = 0; r < root_count; r++) {
        f->readers[sx_eg_find(eg, root[r])]++;
    }
    for (uint32_t i = order_count; i-- > 0;) {
        uint32_t n = f->choice[order[i]];
        uint32_t weight = is_view(sx_tensors_op(f->t, n)) ? f->readers[order[i]] : 1;
        for (uint32_t k = 0; k < eg->node[n].arity; k++) {
            uint32_t child = sx_eg_child(eg, n, k);
            bool again = false;
            for (uint32_t j = 0; j < k; j++) {
                again = again || sx_eg_child(eg, n, j) == child;
            }
            f->readers[child] += again ? 0 : weight;
        }
    }
}

sx_code sx_fuse(sx_ctx *cx, sx_tensors *t, const uint32_t *choice, const uint32_t *order,
                uint32_t order_count, const uint32_t *root, uint32_t root_count,
                const bool *enabled, const sx_eg_limits *limits, uint64_t *fuel,
                sx_fuse_steps *steps, sx_fuse_pairs *pairs, uint64_t *count)
{
    SX_ASSERT(order_count <= t->eg.node_count && root_count > 0);
    sx_fuser f = {.cx = cx,
                  .t = t,
                  .choice = choice,
                  .enabled = enabled,
                  .pairs = pairs,
                  .steps = steps,
                  .count = count,
                  .logarithms = sx_fuser_has_logarithms(t)};
    f.readers = SX_NEW_ARRAY(cx, uint32_t, t->eg.node_count);
    f.form = SX_NEW_ARRAY(cx, sx_fuser_forms, t->eg.node_count);
    if (f.readers == NULL || f.form == NULL) {
        return cx->error.code;
    }
    count_readers(&f, order, order_count, root, root_count);
    sx_ctx_init(&f.scratch, SCRATCH_BYTES);
    sx_code code = SX_OK;
    size_t bytes_start = cx->arena.used_bytes;
    for (uint32_t i = 0; i < order_count && code == SX_OK; i++) {
        if (cx->arena.used_bytes - bytes_start >= limits->bytes || f.work >= *fuel) {
            break; /* what comes after stays as it is */
        }
        code = fuse_class(&f, order[i]);
        sx_arena_rewind(&f.scratch.arena);
    }
    sx_ctx_fini(&f.scratch);
    *fuel -= f.work < *fuel ? f.work : *fuel;
    return code;
}
