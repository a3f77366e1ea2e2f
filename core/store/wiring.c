#include "core/store/wiring.h"

#include <string.h>

static uint32_t count_parameters(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].op == SX_OP_PARAMETER ? 1 : 0;
    }
    return count;
}

/* Parameters of the stored part by those of the part: number i or what it was paired with. */
static uint32_t paired(const uint32_t *of, uint32_t i)
{
    return of != NULL ? of[i] : i;
}

static uint64_t size_of(uint32_t parts, uint32_t words)
{
    return sizeof(sx_wiring_header) + (uint64_t)parts * sizeof(sx_wiring_part) +
           (uint64_t)words * sizeof(uint32_t);
}

/* ---- storing ---- */

static void put_value(const sx_roll *roll, const sx_wired_part *part, sx_roll_value value,
                      uint32_t *word)
{
    bool parameter = value.use == SX_ROLL_PARAMETER;
    word[0] = value.use;
    word[1] =
        parameter ? value.index : paired(part[roll->use[value.use].part].output_of, value.index);
}

static sx_code list_words(sx_ctx *cx, const sx_roll *roll, const sx_wired_part *part,
                          uint32_t **list, uint32_t *count)
{
    uint64_t words = 2 * (uint64_t)roll->whole->output_count;
    for (uint32_t u = 0; u < roll->use_count; u++) {
        words += 2 + 2 * (uint64_t)count_parameters(roll->part[roll->use[u].part].program);
    }
    if (words > SX_WIRING_WORDS_MAX) {
        return SX_FAIL(cx, SX_LIMIT, "wiring: %llu words, at most %u", (unsigned long long)words,
                       SX_WIRING_WORDS_MAX);
    }
    uint32_t *word = SX_NEW_ARRAY(cx, uint32_t, (size_t)words + 1);
    if (word == NULL) {
        return cx->error.code;
    }
    uint32_t w = 0;
    for (uint32_t u = 0; u < roll->use_count; u++) {
        const sx_roll_use *use = &roll->use[u];
        uint32_t arguments = count_parameters(roll->part[use->part].program);
        word[w++] = use->part;
        word[w++] = arguments;
        for (uint32_t k = 0; k < arguments; k++) {
            uint32_t at = paired(part[use->part].parameter_of, k);
            SX_ASSERT(at < arguments);
            put_value(roll, part, use->argument[k], word + w + 2 * (size_t)at);
        }
        w += 2 * arguments;
    }
    for (uint32_t i = 0; i < roll->whole->output_count; i++, w += 2) {
        put_value(roll, part, roll->output[i], word + w);
    }
    SX_ASSERT(w == words);
    *list = word;
    *count = w;
    return SX_OK;
}

sx_code sx_wiring_store(sx_ctx *cx, const sx_roll *roll, const sx_wired_part *part,
                        const sx_library_info *info, const sx_key *rules, sx_buf *bytes)
{
    SX_ASSERT(part != NULL || roll->part_count == 0);
    sx_wiring_header h = {.version = SX_WIRING_VERSION,
                          .part_count = roll->part_count,
                          .use_count = roll->use_count,
                          .output_count = roll->whole->output_count,
                          .parameter_count = count_parameters(roll->whole),
                          .rules = *rules,
                          .info = *info};
    uint32_t *word = NULL;
    SX_TRY(list_words(cx, roll, part, &word, &h.word_count));
    h.size = size_of(h.part_count, h.word_count);
    memcpy(h.magic, SX_WIRING_MAGIC, sizeof(h.magic));
    uint8_t *at = sx_buf_room(bytes, (size_t)h.size);
    SX_TRY(sx_buf_check(cx, bytes, "wiring"));
    memcpy(at, &h, sizeof(h));
    for (uint32_t p = 0; p < h.part_count; p++) {
        memcpy(at + sizeof(h) + p * sizeof(part->as), &part[p].as, sizeof(part->as));
    }
    memcpy(at + size_of(h.part_count, 0), word, h.word_count * sizeof(*word));
    h.digest = sx_hash64((sx_span){at, (size_t)h.size}, 0);
    memcpy(at, &h, sizeof(h));
    return SX_OK;
}

/* ---- opening ---- */

bool sx_wiring_is(sx_span bytes)
{
    SX_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    return bytes.len >= 8 && memcmp(bytes.ptr, SX_WIRING_MAGIC, 8) == 0;
}

static sx_code check_digest(sx_ctx *cx, sx_span bytes, sx_wiring_header h)
{
    uint64_t digest = h.digest;
    uint8_t *copy = sx_alloc(cx, bytes.len);
    if (copy == NULL) {
        return cx->error.code;
    }
    h.digest = 0;
    memcpy(copy, bytes.ptr, bytes.len);
    memcpy(copy, &h, sizeof(h));
    return sx_hash64((sx_span){copy, bytes.len}, 0) == digest
               ? SX_OK
               : SX_FAIL(cx, SX_CORRUPT, "wiring: its digest is another");
}

static sx_code read_header(sx_ctx *cx, sx_span bytes, sx_wiring_header *h)
{
    if (bytes.len < sizeof(*h) || (uintptr_t)bytes.ptr % 8 != 0 || !sx_wiring_is(bytes)) {
        return SX_FAIL(cx, SX_CORRUPT, "wiring: %zu bytes, at least %zu, aligned to 8", bytes.len,
                       sizeof(*h));
    }
    memcpy(h, bytes.ptr, sizeof(*h));
    return SX_OK;
}

static sx_code check_header(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_wiring_header *h)
{
    SX_TRY(read_header(cx, bytes, h));
    if (h->version != SX_WIRING_VERSION) {
        return SX_FAIL(cx, SX_ABSENT, "wiring: form %u, this is %u", h->version, SX_WIRING_VERSION);
    }
    if (h->part_count > SX_ROLL_PARTS_MAX || h->word_count > SX_WIRING_WORDS_MAX ||
        h->use_count > h->word_count / 2 || h->size != bytes.len ||
        size_of(h->part_count, h->word_count) != h->size) {
        return SX_FAIL(cx, SX_CORRUPT, "wiring: %zu bytes, its header counts others", bytes.len);
    }
    SX_TRY(check_digest(cx, bytes, *h));
    return sx_key_equal(&h->rules, rules) ? SX_OK
                                          : SX_FAIL(cx, SX_ABSENT, "wiring: another set of rules");
}

/* One by one, so that no word is read past the last. */
static sx_code check_words(sx_ctx *cx, sx_wiring *b)
{
    const sx_wiring_header *h = &b->header;
    uint32_t w = 0;
    for (uint32_t u = 0; u < h->use_count; u++) {
        b->use_first[u] = w;
        if (h->word_count - w < 2 || b->word[w] >= h->part_count ||
            b->word[w + 1] > (h->word_count - w - 2) / 2) {
            return SX_FAIL(cx, SX_CORRUPT, "wiring use %u: of no part, or cut short", u);
        }
        w += 2 + 2 * b->word[w + 1];
    }
    b->use_first[h->use_count] = w;
    if ((h->word_count - w) % 2 != 0 || (h->word_count - w) / 2 != h->output_count) {
        return SX_FAIL(cx, SX_CORRUPT, "wiring: %u words, %u of them of the outputs", h->word_count,
                       h->word_count - w);
    }
    return SX_OK;
}

sx_code sx_wiring_open(sx_ctx *cx, sx_span bytes, const sx_key *rules, sx_wiring *wiring)
{
    SX_ASSERT((uintptr_t)bytes.ptr % 8 == 0);
    sx_wiring_header h;
    SX_TRY(check_header(cx, bytes, rules, &h));
    *wiring = (sx_wiring){.header = h,
                          .part = (const void *)(bytes.ptr + sizeof(h)),
                          .word = (const void *)(bytes.ptr + size_of(h.part_count, 0)),
                          .use_first = SX_NEW_ARRAY(cx, uint32_t, (size_t)h.use_count + 1)};
    return wiring->use_first != NULL ? check_words(cx, wiring) : cx->error.code;
}

sx_code sx_wiring_rules(sx_ctx *cx, sx_span bytes, sx_key *rules)
{
    sx_wiring_header h;
    SX_TRY(read_header(cx, bytes, &h));
    *rules = h.rules;
    return SX_OK;
}

/* ---- wired alike ---- */

typedef struct {
    const sx_wiring *stored;
    const sx_roll *roll;
    const sx_wired_part *part;
    uint32_t *parameter_of;
    bool *taken; /* by stored parameter */
    uint32_t parameter_count;
} comparison;

/* Does the stored value stand where `value` does? `pair`: a parameter met for the first time is paired. */
static bool same_value(comparison *w, sx_roll_value value, const uint32_t *stored, bool pair)
{
    if (value.use != SX_ROLL_PARAMETER) {
        const uint32_t *output_of = w->part[w->roll->use[value.use].part].output_of;
        return stored[0] == value.use && stored[1] == paired(output_of, value.index);
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

static bool same_use(comparison *w, uint32_t u)
{
    const sx_roll_use *use = &w->roll->use[u];
    const uint32_t *word = w->stored->word + w->stored->use_first[u];
    const sx_wired_part *part = &w->part[use->part];
    uint32_t count = count_parameters(w->roll->part[use->part].program);
    if (word[1] != count || !sx_key_equal(&w->stored->part[word[0]].program, &part->as.program)) {
        return false;
    }
    for (uint32_t k = 0; k < count; k++) {
        uint32_t other = paired(part->parameter_of, k);
        if (other >= count ||
            !same_value(w, use->argument[k], word + 2 + 2 * (size_t)other, true)) {
            return false;
        }
    }
    return true;
}

/* Outputs one to one, those of the stored program in their order where several are one value. */
static bool same_outputs(comparison *w, uint32_t *output_of, bool *taken)
{
    const sx_wiring *b = w->stored;
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

sx_code sx_wiring_alike(sx_ctx *cx, const sx_wiring *wiring, const sx_roll *roll,
                        const sx_wired_part *part, sx_meeting *whole, bool *alike)
{
    SX_ASSERT(wiring->use_first != NULL && (part != NULL || roll->part_count == 0));
    const sx_wiring_header *h = &wiring->header;
    uint32_t parameters = count_parameters(roll->whole);
    *alike = false;
    if (h->use_count != roll->use_count || h->output_count != roll->whole->output_count ||
        h->parameter_count != parameters) {
        return SX_OK;
    }
    comparison w = {.stored = wiring,
                    .roll = roll,
                    .part = part,
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
    for (uint32_t i = 0, j = 0; i < parameters && *alike; i++) { /* those without a use, in order */
        while (w.parameter_of[i] == UINT32_MAX && w.taken[j]) {
            j++;
        }
        if (w.parameter_of[i] == UINT32_MAX) {
            w.parameter_of[i] = j++;
        }
    }
    whole->parameter_of = w.parameter_of;
    return SX_OK;
}
