/* bundle.c - snapshots of the parts of a program, and how they make it (bundle.h). */
#include "core/egraph/bundle.h"

#include <string.h>

static uint32_t count_parameters(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].op == SX_OP_PARAMETER ? 1 : 0;
    }
    return count;
}

static size_t tables_size(uint32_t parts, uint32_t words)
{
    return sizeof(sx_bundle_header) + (size_t)parts * sizeof(sx_bundle_part) +
           (size_t)words * sizeof(uint32_t);
}

/* ---- where a parameter stands ---- */

static bool commutes(sx_op op)
{
    return op == SX_OP_ADD || op == SX_OP_MULTIPLY || op == SX_OP_MAXIMUM || op == SX_OP_MINIMUM;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    const uint64_t word[] = {a, b};
    return sx_hash64((sx_span){(const uint8_t *)word, sizeof(word)}, 0);
}

/* The operation without its operands; names play no role. */
static uint64_t kind_of(const sx_graph *graph, const sx_node *node)
{
    sx_attr attr = *sx_graph_attr(graph, node);
    attr.name = (sx_span){NULL, 0};
    return mixed(node->op, sx_attr_hash(&attr));
}

sx_code sx_bundle_marks(sx_ctx *cx, const sx_graph *graph, uint32_t **mark)
{
    uint64_t *up = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    uint64_t *down = SX_NEW_ARRAY(cx, uint64_t, (size_t)graph->node_count + 1);
    *mark = SX_NEW_ARRAY(cx, uint32_t, (size_t)count_parameters(graph) + 1);
    if (up == NULL || down == NULL || *mark == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const sx_node *node = &graph->node[i];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint64_t operand = up[graph->input[node->input_first + k].i];
            sum += commutes(node->op) ? operand : mixed(operand, k);
        }
        up[i] = mixed(kind_of(graph, node), sum);
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        down[graph->output[i].node.i] += 1;
    }
    for (uint32_t i = graph->node_count; i-- > 0;) {
        const sx_node *node = &graph->node[i];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint64_t place = commutes(node->op) ? 0 : k;
            down[graph->input[node->input_first + k].i] += mixed(mixed(down[i], up[i]), place);
        }
    }
    for (uint32_t i = 0, p = 0; i < graph->node_count; i++) {
        if (graph->node[i].op == SX_OP_PARAMETER) {
            (*mark)[p++] = (uint32_t)mixed(up[i], down[i]);
        }
    }
    return SX_OK;
}

/* A stored parameter of the kind of `node`, at that mark if there is one; UINT32_MAX: all are taken. */
static uint32_t find_parameter(const sx_graph *stored, const uint32_t *word,
                               const sx_graph *program, uint32_t node, const uint32_t *mark,
                               const bool *taken)
{
    const sx_attr *attr = sx_graph_attr(program, &program->node[node]);
    for (uint32_t i = 0, p = 0; i < stored->node_count; i++) {
        const sx_attr *other = sx_graph_attr(stored, &stored->node[i]);
        if (stored->node[i].op != SX_OP_PARAMETER) {
            continue;
        }
        if (!taken[i] && (mark == NULL || word[4 + 3 * (size_t)p] == *mark) &&
            other->weight == attr->weight &&
            sx_type_equal(&stored->node[i].type, &program->node[node].type)) {
            return i;
        }
        p++;
    }
    return UINT32_MAX;
}

sx_code sx_bundle_names(sx_ctx *cx, const sx_bundle *bundle, uint32_t use, const sx_graph *program,
                        sx_library_graph *graph)
{
    const sx_graph *stored = graph->interface;
    const uint32_t *word = bundle->word + bundle->use_first[use];
    uint32_t count = count_parameters(program);
    uint32_t *mark;
    bool *paired = SX_NEW_ARRAY(cx, bool, (size_t)program->node_count + 1);
    bool *taken = SX_NEW_ARRAY(cx, bool, (size_t)stored->node_count + 1);
    if (paired == NULL || taken == NULL) {
        return cx->error.code;
    }
    if (count != word[1] || count != count_parameters(stored)) {
        return SX_OK;
    }
    SX_TRY(sx_bundle_marks(cx, program, &mark));
    for (uint32_t pass = 0; pass < 2; pass++) { /* where it stands, then any of its type */
        for (uint32_t i = 0, k = 0; i < program->node_count; i++) {
            if (program->node[i].op != SX_OP_PARAMETER) {
                continue;
            }
            uint32_t at = paired[i] ? UINT32_MAX
                                    : find_parameter(stored, word, program, i,
                                                     pass == 0 ? &mark[k] : NULL, taken);
            if (at != UINT32_MAX) {
                paired[i] = taken[at] = true;
                graph->t.attrs->attr[stored->node[at].attr.i].name =
                    sx_graph_attr(program, &program->node[i])->name;
            }
            k++;
        }
    }
    return SX_OK;
}

/* ---- storing ---- */

static sx_code list_words(sx_ctx *cx, const sx_roll *roll, uint32_t **list, uint32_t *count)
{
    uint64_t words = 2 * (uint64_t)roll->whole->output_count;
    for (uint32_t u = 0; u < roll->use_count; u++) {
        words += 2 + 3 * (uint64_t)count_parameters(roll->part[roll->use[u].part].program);
    }
    if (words > SX_BUNDLE_WORDS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "bundle: %llu words, at most %u", (unsigned long long)words,
                       SX_BUNDLE_WORDS_MAX);
    }
    uint32_t *word = SX_NEW_ARRAY(cx, uint32_t, (size_t)words + 1);
    if (word == NULL) {
        return cx->error.code;
    }
    uint32_t w = 0;
    for (uint32_t u = 0; u < roll->use_count; u++) {
        const sx_roll_use *use = &roll->use[u];
        uint32_t arguments = count_parameters(roll->part[use->part].program);
        uint32_t *mark;
        SX_TRY(sx_bundle_marks(cx, roll->part[use->part].program, &mark));
        word[w++] = use->part;
        word[w++] = arguments;
        for (uint32_t k = 0; k < arguments; k++) {
            word[w++] = use->argument[k].use;
            word[w++] = use->argument[k].index;
            word[w++] = mark[k];
        }
    }
    for (uint32_t i = 0; i < roll->whole->output_count; i++) {
        word[w++] = roll->output[i].use;
        word[w++] = roll->output[i].index;
    }
    SX_ASSERT(w == words);
    *list = word;
    *count = w;
    return SX_OK;
}

sx_code sx_bundle_begin(sx_ctx *cx, const sx_roll *roll, sx_buf *bytes)
{
    uint32_t *word, count;
    SX_TRY(list_words(cx, roll, &word, &count));
    size_t size = tables_size(roll->part_count, count);
    sx_buf_clear(bytes);
    uint8_t *room = sx_buf_room(bytes, size);
    if (room != NULL) {
        memset(room, 0, size);
    }
    return SX_OK;
}

sx_code sx_bundle_end(sx_ctx *cx, const sx_roll *roll, const sx_bundle_part *part,
                      const sx_library_info *info, const sx_key *rules, sx_buf *bytes)
{
    sx_bundle_header h = {.version = SX_BUNDLE_VERSION,
                          .part_count = roll->part_count,
                          .use_count = roll->use_count,
                          .output_count = roll->whole->output_count,
                          .parameter_count = count_parameters(roll->whole),
                          .rules = *rules,
                          .info = *info};
    uint32_t *word;
    SX_TRY(list_words(cx, roll, &word, &h.word_count));
    SX_TRY(sx_buf_check(cx, bytes, "bundle"));
    memcpy(h.magic, SX_BUNDLE_MAGIC, sizeof(h.magic));
    h.size = bytes->len;
    uint8_t *at = bytes->ptr;
    memcpy(at, &h, sizeof(h));
    memcpy(at + sizeof(h), part, roll->part_count * sizeof(*part));
    memcpy(at + tables_size(roll->part_count, 0), word, h.word_count * sizeof(*word));
    h.digest = sx_hash64((sx_span){at, tables_size(roll->part_count, h.word_count)}, 0);
    memcpy(at, &h, sizeof(h));
    return SX_OK;
}

/* ---- opening ---- */

bool sx_bundle_is(sx_span bytes)
{
    return bytes.len >= 8 && memcmp(bytes.ptr, SX_BUNDLE_MAGIC, 8) == 0;
}

static sx_code check_digest(sx_ctx *cx, sx_span bytes, sx_bundle_header h)
{
    size_t size = tables_size(h.part_count, h.word_count);
    uint64_t digest = h.digest;
    uint8_t *copy = sx_alloc(cx, size);
    if (copy == NULL) {
        return cx->error.code;
    }
    h.digest = 0;
    memcpy(copy, bytes.ptr, size);
    memcpy(copy, &h, sizeof(h));
    return sx_hash64((sx_span){copy, size}, 0) == digest
               ? SX_OK
               : SX_FAIL(cx, SX_CORRUPT, "bundle: its digest is another");
}

static sx_code check_header(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_bundle_header *h)
{
    if (bytes.len < sizeof(*h) || (uintptr_t)bytes.ptr % 8 != 0 || !sx_bundle_is(bytes)) {
        return SX_FAIL(cx, SX_CORRUPT, "bundle: %zu bytes, at least %zu, aligned to 8", bytes.len,
                       sizeof(*h));
    }
    memcpy(h, bytes.ptr, sizeof(*h));
    if (h->version != SX_BUNDLE_VERSION) {
        return SX_FAIL(cx, SX_ABSENT, "bundle: form %u, this is %u", h->version, SX_BUNDLE_VERSION);
    }
    if (h->size != bytes.len || h->part_count > SX_ROLL_PARTS_MAX ||
        h->word_count > SX_BUNDLE_WORDS_MAX || h->use_count > h->word_count / 2 ||
        tables_size(h->part_count, h->word_count) > bytes.len) {
        return SX_FAIL(cx, SX_CORRUPT, "bundle: %zu bytes, its header counts others", bytes.len);
    }
    SX_TRY(check_digest(cx, bytes, *h));
    return sx_key_equal(&h->rules, rules) ? SX_OK
                                          : SX_FAIL(cx, SX_ABSENT, "bundle: another set of rules");
}

/* One by one, so that no word is read past the last. */
static sx_code check_words(sx_ctx *cx, sx_bundle *b)
{
    const sx_bundle_header *h = &b->header;
    uint32_t w = 0;
    for (uint32_t u = 0; u < h->use_count; u++) {
        b->use_first[u] = w;
        if (h->word_count - w < 2 || b->word[w] >= h->part_count ||
            b->word[w + 1] > (h->word_count - w - 2) / 3) {
            return SX_FAIL(cx, SX_CORRUPT, "bundle use %u: of no part, or cut short", u);
        }
        w += 2 + 3 * b->word[w + 1];
    }
    b->use_first[h->use_count] = w;
    if ((h->word_count - w) % 2 != 0 || (h->word_count - w) / 2 != h->output_count) {
        return SX_FAIL(cx, SX_CORRUPT, "bundle: %u words, %u of them of the outputs", h->word_count,
                       h->word_count - w);
    }
    return SX_OK;
}

sx_code sx_bundle_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_bundle *bundle)
{
    sx_bundle_header h;
    SX_TRY(check_header(cx, bytes, rules, &h));
    *bundle = (sx_bundle){.bytes = bytes,
                          .header = h,
                          .part = (const void *)(bytes.ptr + sizeof(h)),
                          .word = (const void *)(bytes.ptr + tables_size(h.part_count, 0)),
                          .use_first = SX_NEW_ARRAY(cx, uint32_t, (size_t)h.use_count + 1)};
    if (bundle->use_first == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < h.part_count; p++) {
        sx_bundle_part row = bundle->part[p];
        if (row.offset % SX_SNAPSHOT_PAGE != 0 || row.offset > bytes.len ||
            row.size > bytes.len - row.offset) {
            return SX_FAIL(cx, SX_CORRUPT, "bundle part %u: outside of %zu bytes", p, bytes.len);
        }
    }
    return check_words(cx, bundle);
}

sx_span sx_bundle_snapshot(const sx_bundle *bundle, uint32_t part)
{
    sx_bundle_part row = bundle->part[part];
    return (sx_span){bundle->bytes.ptr + row.offset, (size_t)row.size};
}

/* ---- wired alike ---- */

typedef struct {
    const sx_bundle *bundle;
    const sx_roll *roll;
    const sx_meeting *const *meeting;
    uint32_t *parameter_of;
    bool *taken; /* by stored parameter */
    uint32_t parameter_count;
} wiring;

/* Does the stored value stand where `value` does? `pair`: a parameter met for the first time is paired. */
static bool same_value(wiring *w, sx_roll_value value, const uint32_t *stored, bool pair)
{
    if (value.use != SX_ROLL_PARAMETER) {
        const sx_meeting *m = w->meeting[w->roll->use[value.use].part];
        return stored[0] == value.use && stored[1] == m->output_of[value.index];
    }
    uint32_t other = stored[1];
    if (stored[0] != SX_ROLL_PARAMETER || other >= w->parameter_count) {
        return false;
    }
    uint32_t *known = &w->parameter_of[value.index];
    if (pair && *known == UINT32_MAX && !w->taken[other]) {
        *known = other;
        w->taken[other] = true;
    }
    return *known == other;
}

static bool same_use(wiring *w, uint32_t u)
{
    const sx_roll_use *use = &w->roll->use[u];
    const uint32_t *word = w->bundle->word + w->bundle->use_first[u];
    uint32_t count = count_parameters(w->roll->part[use->part].program);
    if (word[1] != count) {
        return false;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t other = w->meeting[use->part]->parameter_of[k];
        if (other >= count ||
            !same_value(w, use->argument[k], word + 2 + 3 * (size_t)other, true)) {
            return false;
        }
    }
    return true;
}

/* Outputs one to one, those of the stored program in their order where several are one value. */
static bool same_outputs(wiring *w, uint32_t *output_of, bool *taken)
{
    const sx_bundle *b = w->bundle;
    const uint32_t *word = b->word + b->use_first[b->header.use_count];
    uint32_t count = b->header.output_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = 0;
        while (j < count &&
               (taken[j] || !same_value(w, w->roll->output[i], word + 2 * (size_t)j, false))) {
            j++;
        }
        if (j == count) {
            return false;
        }
        taken[j] = true;
        output_of[i] = j;
    }
    return true;
}

sx_code sx_bundle_wired(sx_ctx *cx, const sx_bundle *bundle, const sx_roll *roll,
                        const sx_meeting *const *meeting, sx_meeting *whole, bool *alike)
{
    const sx_bundle_header *h = &bundle->header;
    uint32_t parameters = count_parameters(roll->whole);
    *alike = false;
    if (h->use_count != roll->use_count || h->output_count != roll->whole->output_count ||
        h->parameter_count != parameters) {
        return SX_OK;
    }
    wiring w = {.bundle = bundle,
                .roll = roll,
                .meeting = meeting,
                .parameter_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)parameters + 1),
                .taken = SX_NEW_ARRAY(cx, bool, (size_t)parameters + 1),
                .parameter_count = parameters};
    bool *output_taken = SX_NEW_ARRAY(cx, bool, (size_t)h->output_count + 1);
    whole->output_of = SX_NEW_ARRAY(cx, uint32_t, (size_t)h->output_count + 1);
    if (w.parameter_of == NULL || w.taken == NULL || output_taken == NULL ||
        whole->output_of == NULL) {
        return cx->error.code;
    }
    memset(w.parameter_of, 0xff, parameters * sizeof(*w.parameter_of));
    *alike = true;
    for (uint32_t u = 0; u < roll->use_count && *alike; u++) {
        *alike = same_use(&w, u);
    }
    *alike = *alike && same_outputs(&w, whole->output_of, output_taken);
    for (uint32_t i = 0; i < parameters && *alike;
         i++) { /* one without a use is paired with none */
        *alike = w.parameter_of[i] != UINT32_MAX;
    }
    whole->parameter_of = w.parameter_of;
    return SX_OK;
}
