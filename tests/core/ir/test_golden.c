/* tests/golden/ir/NAME.sx is what the printer writes; tests/golden/ir/keys.txt has "NAME.sx KEY" for each.
 * SX_GOLDEN=update writes them anew from what the parser reads. */
#include "tests/lib/sweep.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/ir/extent.h"
#include "core/ir/ir.h"

#define FOLDER SX_SOURCE_DIR "/tests/golden/ir/"

static const char *const files[] = {"mlp.sx",     "encoder.sx", "ops.sx",   "constants.sx",
                                    "fused.sx",   "names.sx",   "mesh.sx",  "origins.sx",
                                    "regions.sx", "state.sx",   "crop.sx",  "collectives.sx",
                                    "empty.sx",   "sums.sx",    "nested.sx"};

static bool updating(void)
{
    const char *mode = getenv("SX_GOLDEN");
    return mode != NULL && strcmp(mode, "update") == 0;
}

static void read_golden(const char *name, sx_buf *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s%s", FOLDER, name);
    sx_buf_init(text, SX_TEXT_BYTES_MAX);
    sx_test_read_file(path, text);
}

static void write_golden(const char *name, const sx_buf *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s%s", FOLDER, name);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text->ptr, 1, text->len, file), text->len);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(test_round_trip)
{
    sx_buf keys;
    sx_buf_init(&keys, 1 << 16);
    for (uint32_t i = 0; i < SX_COUNT(files); i++) {
        sx_ctx cx;
        sx_ctx_init(&cx, 64 << 20);
        sx_buf text;
        read_golden(files[i], &text);
        sx_graph *graph;
        sx_code code = sx_graph_parse(&cx, sx_buf_span(&text), &graph);
        ck_assert_msg(code == SX_OK, "%s: %s", files[i], cx.error.text);
        sx_buf printed;
        sx_buf_init(&printed, SX_TEXT_BYTES_MAX);
        ck_sx_ok(&cx, sx_graph_print(&cx, graph, &printed));
        if (updating()) {
            write_golden(files[i], &printed);
        } else {
            ck_assert_msg(sx_span_equal(sx_buf_span(&text), sx_buf_span(&printed)), "%s:\n%.*s",
                          files[i], (int)printed.len, (const char *)printed.ptr);
        }
        sx_key key;
        char hex[SX_KEY_TEXT_SIZE];
        ck_sx_ok(&cx, sx_graph_key(&cx, graph, &key));
        sx_key_print(&key, hex);
        sx_buf_print(&keys, "%s %s\n", files[i], hex);
        sx_buf_fini(&printed);
        sx_buf_fini(&text);
        sx_ctx_fini(&cx);
    }
    if (updating()) {
        write_golden("keys.txt", &keys);
    }
    sx_buf expected;
    read_golden("keys.txt", &expected);
    ck_assert_msg(sx_span_equal(sx_buf_span(&keys), sx_buf_span(&expected)), "keys are now\n%.*s",
                  (int)keys.len, (const char *)keys.ptr);
    sx_buf_fini(&expected);
    sx_buf_fini(&keys);
}
END_TEST

/* The examples of docs/IR.md are programs. */
START_TEST(test_documentation)
{
    sx_buf page;
    sx_buf_init(&page, 1 << 20);
    sx_test_read_file(SX_SOURCE_DIR "/docs/IR.md", &page);
    sx_buf_put_u8(&page, 0);
    uint32_t examples = 0;
    const char *at = (const char *)page.ptr;
    while ((at = strstr(at, "```sx\n")) != NULL) {
        at += strlen("```sx\n");
        const char *end = strstr(at, "```");
        ck_assert_ptr_nonnull(end);
        sx_ctx cx;
        sx_ctx_init(&cx, 16 << 20);
        sx_graph *graph;
        sx_span text = {(const uint8_t *)at, (size_t)(end - at)};
        ck_sx_ok(&cx, sx_graph_parse(&cx, text, &graph));
        sx_ctx_fini(&cx);
        at = end + 3;
        examples++;
    }
    ck_assert_uint_ge(examples, 2);
    sx_buf_fini(&page);
}
END_TEST

/* Whatever the text: a graph that checks and prints, or an error that says where. */
static void expect_answer(const uint8_t *bytes, size_t len, const char *what, size_t at)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 64 << 20);
    sx_graph *graph;
    sx_code code = sx_graph_parse(&cx, (sx_span){bytes, len}, &graph);
    if (code == SX_OK) {
        ck_sx_ok(&cx, sx_graph_check(&cx, graph));
        sx_buf text;
        sx_buf_init(&text, SX_TEXT_BYTES_MAX);
        ck_sx_ok(&cx, sx_graph_print(&cx, graph, &text));
        sx_graph *back;
        ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &back));
        sx_buf_fini(&text);
    } else {
        unsigned line;
        unsigned column;
        ck_assert_msg(code == SX_INPUT || code == SX_LIMIT || code == SX_UNIMPLEMENTED,
                      "%s at %zu: %s %s", what, at, sx_code_name(code), cx.error.text);
        ck_assert_msg(sscanf(cx.error.text, "line %u:%u: ", &line, &column) == 2 && line >= 1 &&
                          column >= 1,
                      "%s at %zu: '%s'", what, at, cx.error.text);
        ck_assert_msg(strchr(cx.error.text, '\n') == NULL, "'%s'", cx.error.text);
    }
    sx_ctx_fini(&cx);
}

START_TEST(test_truncations)
{
    sx_buf text;
    read_golden(files[_i], &text);
    for (size_t len = 0; len < text.len; len++) {
        /* a copy of its own, so that a sanitizer sees a read behind the end */
        uint8_t *copy = malloc(len + 1);
        ck_assert_ptr_nonnull(copy);
        uint8_t *tight = realloc(copy, len > 0 ? len : 1);
        ck_assert_ptr_nonnull(tight);
        memcpy(tight, text.ptr, len);
        expect_answer(tight, len, files[_i], len);
        free(tight);
    }
    sx_buf_fini(&text);
}
END_TEST

START_TEST(test_flips)
{
    uint64_t seed = sx_test_seed();
    sx_rng rng = {seed + (uint64_t)_i};
    static const char interesting[] = "{}()[],=:*+%\"\\-0123456789aefnx./ \n";
    sx_buf text;
    read_golden(files[_i], &text);
    uint8_t *copy = malloc(text.len);
    ck_assert_ptr_nonnull(copy);
    for (uint32_t round = 0; round < 2000; round++) {
        memcpy(copy, text.ptr, text.len);
        for (uint64_t flips = 1 + sx_rng_below(&rng, 3); flips > 0; flips--) {
            size_t at = (size_t)sx_rng_below(&rng, text.len);
            uint64_t kind = sx_rng_below(&rng, 4);
            if (kind == 0) {
                copy[at] ^= (uint8_t)(1u << sx_rng_below(&rng, 8));
            } else if (kind == 1) {
                copy[at] = (uint8_t)interesting[sx_rng_below(&rng, sizeof(interesting) - 1)];
            } else { /* a piece of the text over another */
                size_t from = (size_t)sx_rng_below(&rng, text.len);
                size_t most = text.len - (from > at ? from : at);
                size_t len = (size_t)sx_rng_below(&rng, most < 40 ? most + 1 : 40);
                memmove(copy + at, text.ptr + from, len);
            }
        }
        expect_answer(copy, text.len, files[_i], round);
    }
    free(copy);
    sx_buf_fini(&text);
}
END_TEST

/* Parsed, keyed, bound and printed. */
static sx_code whole_way(sx_ctx *cx, void *self)
{
    sx_graph *graph;
    sx_graph *bound;
    sx_key key;
    sx_binding binding[SX_SYMBOLS_MAX];
    sx_buf out;
    SX_TRY(sx_graph_parse(cx, *(const sx_span *)self, &graph));
    SX_TRY(sx_graph_key(cx, graph, &key));
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->symbol_count; i++) {
        if (sx_symbol_is_declared(&graph->symbol[i])) {
            binding[count++] = (sx_binding){graph->symbol[i].name, graph->symbol[i].high};
        }
    }
    SX_TRY(sx_graph_bind(cx, graph, binding, count, &bound));
    sx_buf_init(&out, (size_t)1 << 24);
    sx_code code = sx_graph_print(cx, bound, &out);
    sx_buf_fini(&out);
    return code;
}

/* Memory ends at every step of the way: an error, never a crash. */
START_TEST(test_memory_sweep)
{
    sx_buf text;
    read_golden(files[_i], &text);
    sx_span span = sx_buf_span(&text);
    (void)sx_test_oom(&(sx_test_sweep){
        .name = files[_i], .work = whole_way, .self = &span, .part = 0.02, .fails_min = 20});
    sx_buf_fini(&text);
}
END_TEST

/* Room for the text ends at every byte: SX_LIMIT, and never a text that is cut short. */
START_TEST(test_room_sweep)
{
    sx_buf text;
    sx_ctx cx;
    sx_graph *graph;
    read_golden(files[_i], &text);
    sx_ctx_init(&cx, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_graph_parse(&cx, sx_buf_span(&text), &graph));
    sx_buf whole;
    sx_buf_init(&whole, (size_t)1 << 24);
    ck_sx_ok(&cx, sx_graph_print(&cx, graph, &whole));
    for (size_t limit = 0; limit < whole.len; limit += 1 + whole.len / 199) {
        sx_buf out;
        sx_buf_init(&out, limit);
        ck_sx_fails(&cx, sx_graph_print(&cx, graph, &out), SX_LIMIT, "more than");
        ck_assert_uint_le(out.len, limit);
        sx_buf_fini(&out);
    }
    sx_buf_fini(&whole);
    sx_ctx_fini(&cx);
    sx_buf_fini(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ir/golden");
    TCase *tcase = tcase_create("golden");
    tcase_add_test(tcase, test_round_trip);
    tcase_add_test(tcase, test_documentation);
    tcase_add_loop_test(tcase, test_truncations, 0, (int)SX_COUNT(files));
    tcase_add_loop_test(tcase, test_flips, 0, (int)SX_COUNT(files));
    tcase_add_loop_test(tcase, test_memory_sweep, 0, (int)SX_COUNT(files));
    tcase_add_loop_test(tcase, test_room_sweep, 0, (int)SX_COUNT(files));
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
