#include "core/egraph/pattern.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX (2 * SX_PATTERN_NODES_MAX)

/* Where the lists of a pattern grow while it is read; hundreds of patterns are read for a request, most of
 * them small. */
typedef struct {
    sx_pattern_part part[SX_PATTERN_NODES_MAX];
    sx_step step[STEPS_MAX];
    uint8_t reg_bind[256];
    uint8_t reg_slot[256];
} room;

typedef struct {
    sx_ctx *cx;
    const sx_eg_language *language;
    const char *rule_name;
    const char *text;
    const char *at;
    sx_pattern *pattern;
    room *lists;
    bool is_right;
    uint32_t depth;
} reader;

static sx_code bad(reader *r, const char *expected)
{
    return SX_FAIL(r->cx, SX_INPUT, "rule %s: column %d of '%s': expected %s", r->rule_name,
                   (int)(r->at - r->text) + 1, r->text, expected);
}

static void skip_blanks(reader *r)
{
    while (*r->at == ' ') {
        r->at++;
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static sx_span read_word(reader *r)
{
    const char *start = r->at;
    while (is_word(*r->at)) {
        r->at++;
    }
    return (sx_span){(const uint8_t *)start, (size_t)(r->at - start)};
}

/* The number of a name, new or known; a right side may only use known ones. */
static sx_code name_index(reader *r, sx_span *table, uint32_t *count, sx_span word, uint8_t *index)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (sx_span_equal(table[i], word)) {
            *index = (uint8_t)i;
            return SX_OK;
        }
    }
    if (word.len == 0 || *count >= SX_PATTERN_NAMES_MAX || r->is_right) {
        return bad(r, "a name that is bound, at most 16 names");
    }
    table[*count] = word;
    *index = (uint8_t)(*count)++;
    return SX_OK;
}

static sx_code read_part(reader *r, uint8_t *index);

static sx_code read_node(reader *r, sx_pattern_part *part)
{
    r->at++; /* '(' */
    bool is_set = *r->at == '*';
    r->at += is_set ? 1 : 0;
    sx_span word = read_word(r);
    part->kind = SX_PART_NODE;
    part->name = part->attr_name = SX_PATTERN_NONE;
    if (!r->language->ops(r->language->self, word, is_set, &part->ops) || (r->is_right && is_set)) {
        return bad(r, "the name of an operation");
    }
    if (*r->at == '@') {
        r->at++;
        SX_TRY(name_index(r, r->pattern->attr_name, &r->pattern->attr_name_count, read_word(r),
                          &part->attr_name));
    }
    for (;;) {
        skip_blanks(r);
        if (*r->at == ')') {
            r->at++;
            return SX_OK;
        }
        if (!r->is_right && strncmp(r->at, "...", 3) == 0) {
            part->any_arity = true;
            r->at += 3;
            continue;
        }
        if (part->arity >= SX_PATTERN_NAMES_MAX || part->any_arity) {
            return bad(r, "')'");
        }
        SX_TRY(read_part(r, &part->child[part->arity]));
        part->arity++;
    }
}

static sx_code read_name(reader *r, sx_pattern_part *part)
{
    r->at++; /* '?' */
    uint8_t name;
    SX_TRY(name_index(r, r->pattern->name, &r->pattern->name_count, read_word(r), &name));
    part->kind = SX_PART_NAME;
    if (*r->at == '=') {
        r->at++;
        if (*r->at != '(' || r->is_right) {
            return bad(r, "'('");
        }
        SX_TRY(read_node(r, part));
    }
    part->name = name;
    return SX_OK;
}

static sx_code read_part(reader *r, uint8_t *index)
{
    skip_blanks(r);
    sx_pattern *p = r->pattern;
    if (p->part_count >= SX_PATTERN_NODES_MAX || r->depth >= SX_PATTERN_DEPTH_MAX) {
        return bad(r, "a smaller pattern: at most 32 parts and 12 levels");
    }
    r->depth++;
    *index = (uint8_t)p->part_count++;
    sx_pattern_part part = {.name = SX_PATTERN_NONE};
    if (*r->at == '(') {
        SX_TRY(read_node(r, &part));
    } else if (*r->at == '?') {
        SX_TRY(read_name(r, &part));
    } else {
        char *end = NULL;
        part.kind = SX_PART_VALUE;
        part.value = strtod(r->at, &end);
        if (end == r->at) {
            return bad(r, "a name, a number or '('");
        }
        r->at = end;
    }
    r->lists->part[*index] = part;
    r->depth--;
    return SX_OK;
}

static void emit(reader *r, sx_step step)
{
    SX_ASSERT(r->pattern->step_count < STEPS_MAX);
    r->lists->step[r->pattern->step_count++] = step;
}

/* Names of the part's class: first mention binds the register, later ones compare. */
static void emit_name(reader *r, const sx_pattern_part *part, uint8_t reg)
{
    sx_pattern *p = r->pattern;
    if (part->name == SX_PATTERN_NONE) {
        return;
    }
    if (p->name_reg[part->name] == SX_PATTERN_NONE) {
        p->name_reg[part->name] = reg;
    } else {
        emit(r, (sx_step){.kind = SX_STEP_SAME, .from = reg, .other = p->name_reg[part->name]});
    }
}

/* The operations as the classes hint at theirs: modulo 8. */
static uint8_t hint_of(const sx_bits *set)
{
    uint64_t ops = set->word[0] | set->word[1];
    ops |= ops >> 32;
    ops |= ops >> 16;
    return (uint8_t)(ops | ops >> 8);
}

/* Names and values among the children are tested before deeper nodes are looked at. */
static void emit_node(reader *r, const sx_pattern_part *part, uint8_t reg, uint32_t depth)
{
    sx_pattern *p = r->pattern;
    sx_step step = {.kind = SX_STEP_BIND,
                    .from = reg,
                    .other = SX_PATTERN_NONE,
                    .bind = (uint8_t)p->bind_count++,
                    .out = (uint8_t)p->reg_count,
                    .arity = part->arity,
                    .any_arity = part->any_arity,
                    .ops = part->ops,
                    .hint = hint_of(&part->ops)};
    if (part->attr_name != SX_PATTERN_NONE) {
        step.other = p->attr_bind[part->attr_name];
        if (step.other == SX_PATTERN_NONE) {
            p->attr_bind[part->attr_name] = step.bind;
        }
    }
    emit(r, step);
    for (uint32_t k = 0; k < part->arity; k++) {
        r->lists->reg_bind[p->reg_count] = step.bind;
        r->lists->reg_slot[p->reg_count++] = (uint8_t)k;
    }
    p->depth = p->depth > depth ? p->depth : depth;
    for (uint32_t k = 0; k < part->arity; k++) {
        const sx_pattern_part *child = &p->part[part->child[k]];
        uint8_t child_reg = (uint8_t)(step.out + k);
        emit_name(r, child, child_reg);
        if (child->kind == SX_PART_VALUE) {
            emit(r, (sx_step){.kind = SX_STEP_VALUE, .from = child_reg, .value = child->value});
        }
    }
    for (uint32_t k = 0; k < part->arity; k++) {
        const sx_pattern_part *child = &p->part[part->child[k]];
        if (child->kind == SX_PART_NODE) {
            emit_node(r, child, (uint8_t)(step.out + k), depth + 1);
        }
    }
}

static void *copy_list(sx_ctx *cx, const void *list, uint32_t count, size_t size)
{
    void *copy = sx_alloc_array(cx, count + 1, size);
    if (copy != NULL) {
        memcpy(copy, list, count * size);
    }
    return copy;
}

/* The lists at the length they have. */
static sx_code leave_room(sx_ctx *cx, sx_pattern *p)
{
    p->part = copy_list(cx, p->part, p->part_count, sizeof(*p->part));
    p->step = copy_list(cx, p->step, p->step_count, sizeof(*p->step));
    p->reg_bind = copy_list(cx, p->reg_bind, p->reg_count, sizeof(*p->reg_bind));
    p->reg_slot = copy_list(cx, p->reg_slot, p->reg_count, sizeof(*p->reg_slot));
    return p->part == NULL || p->step == NULL || p->reg_bind == NULL || p->reg_slot == NULL
               ? cx->error.code
               : SX_OK;
}

sx_code sx_pattern_parse(sx_ctx *cx, const sx_eg_language *language, const char *rule_name,
                         const char *text, const sx_pattern *left, const sx_pattern **pattern)
{
    sx_pattern *p = SX_NEW(cx, sx_pattern);
    room lists;
    if (p == NULL) {
        return cx->error.code;
    }
    lists.reg_bind[0] = lists.reg_slot[0] = 0; /* of register 0, the root */
    p->part = lists.part;
    p->step = lists.step;
    p->reg_bind = lists.reg_bind;
    p->reg_slot = lists.reg_slot;
    if (left != NULL) {
        memcpy(p->name, left->name, sizeof(p->name));
        memcpy(p->attr_name, left->attr_name, sizeof(p->attr_name));
        memcpy(p->attr_bind, left->attr_bind, sizeof(p->attr_bind));
        p->name_count = left->name_count;
        p->attr_name_count = left->attr_name_count;
    }
    reader r = {.cx = cx,
                .language = language,
                .rule_name = rule_name,
                .text = text,
                .at = text,
                .pattern = p,
                .lists = &lists,
                .is_right = left != NULL};
    uint8_t root;
    SX_TRY(read_part(&r, &root));
    skip_blanks(&r);
    if (*r.at != '\0') {
        return bad(&r, "the end");
    }
    p->root = root;
    if (left == NULL) {
        if (p->part[root].kind != SX_PART_NODE) {
            return bad(&r, "a left side that is a node");
        }
        memset(p->name_reg, (int)SX_PATTERN_NONE, sizeof(p->name_reg));
        memset(p->attr_bind, (int)SX_PATTERN_NONE, sizeof(p->attr_bind));
        p->reg_count = 1;
        emit_name(&r, &p->part[root], 0);
        emit_node(&r, &p->part[root], 0, 1);
        SX_ASSERT(p->reg_count < SX_PATTERN_NONE);
    }
    *pattern = p;
    return leave_room(cx, p);
}

typedef struct {
    sx_ctx *cx;
    const sx_eg *eg;
    const sx_eg_language *language;
    const sx_pattern *pattern;
    sx_match_list *found;
    uint32_t match_limit;
    uint64_t work, work_limit;
    uint32_t reg[256];
    uint32_t bind[SX_PATTERN_NODES_MAX];
} machine;

static sx_code report(machine *m)
{
    const sx_pattern *p = m->pattern;
    sx_match_list *found = m->found;
    uint32_t need = found->count + sx_pattern_stride(p);
    SX_TRY(sx_region_grow(m->cx, (void **)&found->word, &found->capacity, need, sizeof(uint32_t)));
    uint32_t *word = &found->word[found->count];
    for (uint32_t i = 0; i < p->bind_count; i++) {
        *word++ = m->bind[i];
    }
    for (uint32_t i = 0; i < p->name_count; i++) {
        *word++ = m->reg[p->name_reg[i]];
    }
    found->count = need;
    found->match_count++;
    return SX_OK;
}

/* Steps from `pc` on, backtracking by recursion: at most one level per step of the pattern. */
static sx_code run_steps(machine *m, uint32_t pc)
{
    const sx_pattern *p = m->pattern;
    const sx_eg *eg = m->eg;
    for (; pc < p->step_count && p->step[pc].kind != SX_STEP_BIND; pc++) {
        const sx_step *step = &p->step[pc];
        uint32_t class_ = m->reg[step->from];
        m->work++;
        if (step->kind == SX_STEP_SAME
                ? class_ != m->reg[step->other]
                : !m->language->is_value(m->language->self, eg, class_, step->value)) {
            return SX_OK;
        }
    }
    if (pc == p->step_count) {
        return report(m);
    }
    const sx_step *step = &p->step[pc];
    uint32_t first = m->reg[step->from];
    m->work++;
    if ((eg->node[first].ops & step->hint) == 0) {
        return SX_OK;
    }
    uint32_t n = first;
    do {
        const sx_eg_node *node = &eg->node[n];
        m->work++;
        if (node->dead == 0 && sx_bits_has(&step->ops, node->op) &&
            (step->any_arity ? node->arity >= step->arity : node->arity == step->arity) &&
            (step->other == SX_PATTERN_NONE || eg->node[m->bind[step->other]].attr == node->attr)) {
            for (uint32_t k = 0; k < step->arity; k++) {
                m->reg[step->out + k] = sx_eg_child(eg, n, k);
            }
            m->bind[step->bind] = n;
            SX_TRY(run_steps(m, pc + 1));
            if (m->found->match_count >= m->match_limit || m->work > m->work_limit) {
                return SX_OK;
            }
        }
        n = sx_eg_member_next(eg, n);
    } while (n != first);
    return SX_OK;
}

sx_code sx_pattern_search(sx_ctx *cx, const sx_eg *eg, const sx_eg_language *language,
                          const sx_pattern *pattern, uint32_t root, uint32_t match_limit,
                          uint64_t work_limit, sx_match_list *found, uint64_t *work)
{
    machine m;
    m.cx = cx;
    m.eg = eg;
    m.language = language;
    m.pattern = pattern;
    m.found = found;
    m.match_limit = match_limit;
    m.work = 0;
    m.work_limit = work_limit;
    m.reg[0] = root;
    SX_ASSERT(sx_eg_is_class(eg, root));
    sx_code code = run_steps(&m, 0);
    *work += m.work;
    return code;
}

static sx_code build_part(sx_ctx *cx, sx_eg *eg, const sx_eg_language *language,
                          const sx_pattern *right, uint32_t index, const uint32_t *match_node,
                          const uint32_t *match_var, uint32_t *node)
{
    const sx_pattern_part *part = &right->part[index];
    if (part->kind == SX_PART_NAME) {
        *node = match_var[part->name];
        return SX_OK;
    }
    if (part->kind == SX_PART_VALUE) {
        return language->make_value(cx, language->self, eg, match_node[0], part->value, node);
    }
    uint32_t child[SX_PATTERN_NAMES_MAX];
    for (uint32_t k = 0; k < part->arity; k++) {
        SX_TRY(
            build_part(cx, eg, language, right, part->child[k], match_node, match_var, &child[k]));
        if (child[k] == SX_EG_NONE) {
            *node = SX_EG_NONE;
            return SX_OK;
        }
    }
    uint32_t attr = 0;
    if (part->attr_name != SX_PATTERN_NONE) {
        attr = eg->node[match_node[right->attr_bind[part->attr_name]]].attr;
    }
    uint16_t op = (uint16_t)sx_bits_first(&part->ops);
    if (language->make_node == NULL) {
        return sx_eg_add(cx, eg, op, attr, child, part->arity, node);
    }
    return language->make_node(cx, language->self, eg, op, attr, child, part->arity, node);
}

sx_code sx_pattern_build(sx_ctx *cx, sx_eg *eg, const sx_eg_language *language,
                         const sx_pattern *right, const uint32_t *match_node,
                         const uint32_t *match_var, uint32_t *node)
{
    SX_ASSERT(right->root < right->part_count);
    return build_part(cx, eg, language, right, right->root, match_node, match_var, node);
}

bool sx_pattern_batches(const sx_eg_language *language, const sx_pattern *right)
{
    bool batches = language->make_node == NULL;
    for (uint32_t i = 0; i < right->part_count; i++) {
        batches = batches && right->part[i].arity <= SX_EG_BATCH_ARITY;
    }
    return batches;
}

bool sx_pattern_finds(const sx_eg_language *language, const sx_pattern *right)
{
    bool finds = sx_pattern_batches(language, right);
    for (uint32_t i = 0; i < right->part_count; i++) {
        finds = finds && right->part[i].kind != SX_PART_VALUE;
    }
    return finds;
}

/* The matches that a part of a right side is built for, and where the values of its parts are. */
typedef struct {
    const sx_eg *eg;
    const sx_pattern *right;
    const uint32_t *match;
    uint32_t stride, bind_count, count;
    sx_eg_operand of[SX_PATTERN_NODES_MAX];
    uint32_t made[SX_PATTERN_NODES_MAX][SX_EG_BATCH];
    sx_eg_operand child[SX_EG_BATCH_ARITY]; /* of the node at hand */
    uint32_t attr[SX_EG_BATCH];
} builder;

static void begin_parts(builder *b, const sx_eg *eg, const sx_pattern *right, const uint32_t *match,
                        uint32_t stride, uint32_t bind_count, uint32_t count)
{
    SX_ASSERT(count <= SX_EG_BATCH && right->root == 0);
    b->eg = eg; /* the rest is filled as it is needed: it is large */
    b->right = right;
    b->match = match;
    b->stride = stride;
    b->bind_count = bind_count;
    b->count = count;
}

/* Readies the children and attributes of node `p`; NULL: all attributes are 0. */
static const uint32_t *ready_node(builder *b, uint32_t p)
{
    const sx_pattern_part *part = &b->right->part[p];
    for (uint32_t k = 0; k < part->arity; k++) {
        b->child[k] = b->of[part->child[k]];
    }
    if (part->attr_name == SX_PATTERN_NONE) {
        return NULL;
    }
    const uint32_t *from = b->match + b->right->attr_bind[part->attr_name];
    for (uint32_t i = 0; i < b->count; i++) {
        b->attr[i] = b->eg->node[from[(size_t)i * b->stride]].attr;
    }
    return b->attr;
}

static void place_part(builder *b, uint32_t p)
{
    const sx_pattern_part *part = &b->right->part[p];
    b->of[p] = part->kind == SX_PART_NAME
                   ? (sx_eg_operand){b->match + b->bind_count + part->name, b->stride}
                   : (sx_eg_operand){b->made[p], 1};
}

static void take_root(const builder *b, uint32_t *node)
{
    for (uint32_t i = 0; i < b->count; i++) {
        node[i] = b->of[0].at[(size_t)i * b->of[0].stride];
    }
}

/* Part by part, each for all matches: parts are numbered before what stands in them, so backwards is from the
 * inside out. */
sx_code sx_pattern_build_batch(sx_ctx *cx, sx_eg *eg, const sx_eg_language *language,
                               const sx_pattern *right, const uint32_t *match, uint32_t stride,
                               uint32_t bind_count, uint32_t count, uint32_t *node)
{
    SX_ASSERT(count <= SX_EG_BATCH && bind_count <= stride);
    builder b;
    begin_parts(&b, eg, right, match, stride, bind_count, count);
    for (uint32_t p = right->part_count; p-- > 0;) {
        const sx_pattern_part *part = &right->part[p];
        place_part(&b, p);
        for (uint32_t i = 0; part->kind == SX_PART_VALUE && i < count; i++) {
            SX_TRY(language->make_value(cx, language->self, eg, match[(size_t)i * stride],
                                        part->value, &b.made[p][i]));
        }
        if (part->kind == SX_PART_NODE) {
            const uint32_t *attr = ready_node(&b, p);
            SX_TRY(sx_eg_add_batch(cx, eg, (uint16_t)sx_bits_first(&part->ops), attr, b.child,
                                   part->arity, count, b.made[p]));
        }
    }
    take_root(&b, node);
    return SX_OK;
}

void sx_pattern_find_batch(const sx_eg *eg, const sx_pattern *right, const uint32_t *match,
                           uint32_t stride, uint32_t bind_count, uint32_t count, uint32_t *node)
{
    builder b;
    begin_parts(&b, eg, right, match, stride, bind_count, count);
    for (uint32_t p = right->part_count; p-- > 0;) {
        const sx_pattern_part *part = &right->part[p];
        place_part(&b, p);
        SX_ASSERT(part->kind != SX_PART_VALUE);
        if (part->kind == SX_PART_NODE) {
            const uint32_t *attr = ready_node(&b, p);
            sx_eg_find_batch(eg, (uint16_t)sx_bits_first(&part->ops), attr, b.child, part->arity,
                             count, b.made[p]);
        }
    }
    take_root(&b, node);
}

void sx_pattern_drop_idle(const sx_eg *eg, const sx_eg_rule *rule, sx_match_list *found)
{
    uint32_t stride = sx_pattern_stride(rule->left);
    uint32_t count = found->match_count - found->looked;
    uint32_t node[SX_EG_BATCH];
    uint32_t *match = &found->word[(size_t)found->looked * stride];
    uint32_t *to = match;
    SX_ASSERT(count <= SX_EG_BATCH);
    for (uint32_t i = 0; i < count; i++) {
        sx_eg_approach(eg, match[(size_t)i * stride]);
    }
    sx_pattern_find_batch(eg, rule->right, match, stride, rule->left->bind_count, count, node);
    for (uint32_t i = 0; i < count; i++, match += stride) {
        bool idle = node[i] != SX_EG_NONE && sx_eg_find(eg, node[i]) == sx_eg_find(eg, match[0]);
        if (!idle && to != match) {
            memcpy(to, match, stride * sizeof(*to));
        }
        to += idle ? 0 : stride;
    }
    uint32_t kept = (uint32_t)(to - &found->word[(size_t)found->looked * stride]) / stride;
    bool worth = kept * 2 <= count;
    found->passed = worth                                   ? 0
                    : found->passed < 64u * SX_EG_BATCH / 2 ? found->passed * 2 + SX_EG_BATCH
                                                            : 64u * SX_EG_BATCH;
    found->pass = found->passed;
    found->idle += count - kept;
    found->match_count -= count - kept;
    found->count = found->match_count * stride;
    found->looked = found->match_count;
}
