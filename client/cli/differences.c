#include "client/cli/differences.h"

#include <string.h>

#include "client/cli/table.h"

/* The next word of a schedule from *rest on: what stands between spaces, commas and parentheses. */
static sx_span next_word(sx_span *rest)
{
    size_t begin = 0, end;
    while (begin < rest->len && strchr(" ,()", rest->ptr[begin]) != NULL) {
        begin++;
    }
    for (end = begin; end < rest->len && strchr(" ,()", rest->ptr[end]) == NULL;) {
        end++;
    }
    sx_span word = {rest->ptr + begin, end - begin};
    *rest = (sx_span){rest->ptr + end, rest->len - end};
    return word;
}

/* The first words in which two schedules differ; false: there are none. */
static bool differing_words(sx_span left, sx_span right, sx_span word[2])
{
    do {
        word[0] = next_word(&left);
        word[1] = next_word(&right);
    } while (word[0].len > 0 && sx_span_equal(word[0], word[1]));
    return !sx_span_equal(word[0], word[1]);
}

static void put_words(const sx_span word[2], sx_buf *out)
{
    sx_buf_put_text(out, " has ");
    sxc_put_plain(out, word[1].len > 0 ? word[1] : SX_SPAN_LITERAL("nothing more"));
    sx_buf_put_text(out, " in its schedule, not ");
    sxc_put_plain(out, word[0].len > 0 ? word[0] : SX_SPAN_LITERAL("nothing more"));
}

/* A number of a part, in the order in which they are compared. */
static bool differing_number(const sx_module_part *left, const sx_module_part *right, sx_buf *out)
{
    static const char *const names[] = {"points along x",         "points along y",
                                        "points along z",         "threads in a block",
                                        "bytes of shared memory", "blocks that walk"};
    const int64_t number[2][6] = {{left->grid[0], left->grid[1], left->grid[2], left->threads,
                                   left->shared_bytes, left->walkers},
                                  {right->grid[0], right->grid[1], right->grid[2], right->threads,
                                   right->shared_bytes, right->walkers}};
    for (uint32_t i = 0; i < SX_COUNT(names); i++) {
        if (number[0][i] != number[1][i]) {
            sx_buf_print(out, " has %s: %lld, not %lld", names[i], (long long)number[1][i],
                         (long long)number[0][i]);
            return true;
        }
    }
    return false;
}

/* What differs between two kernels; false: neither their schedules nor how they are launched. */
static bool put_kernels(const sx_module *module, const sx_module_kernel *left,
                        const sx_module_kernel *right, sx_buf *out)
{
    sx_span word[2];
    if (differing_words(sx_module_string(module, left->plan), sx_module_string(module, right->plan),
                        word)) {
        put_words(word, out);
        return true;
    }
    if (left->numerics != right->numerics) {
        sx_buf_put_text(out, " has another numerics plan");
        return true;
    }
    if (left->part_count != right->part_count) {
        sx_buf_print(out, " has %u parts, not %u", right->part_count, left->part_count);
        return true;
    }
    bool differs = false;
    for (uint32_t p = 0; p < left->part_count && !differs; p++) {
        differs = differing_number(&module->part[left->part_first + p],
                                   &module->part[right->part_first + p], out);
    }
    return differs;
}

void sxc_put_difference(const sx_module *module, uint64_t before, uint64_t variant, sx_buf *out)
{
    const sx_module_variant *left = &module->variant[before], *right = &module->variant[variant];
    const sx_module_kernel *first[2] = {NULL, NULL};
    uint32_t differing = 0;
    if (left->launch_count != right->launch_count) {
        sx_buf_print(out, "%u launches, not %u as ", right->launch_count, left->launch_count);
        sxc_put_plain(out, sx_module_string(module, left->name));
        return;
    }
    for (uint32_t k = 0; k < left->launch_count; k++) {
        const sx_module_kernel *one = sx_module_kernel_of(module, left->launch_first + k);
        const sx_module_kernel *other = sx_module_kernel_of(module, right->launch_first + k);
        if (one != other && one != NULL && other != NULL) {
            first[0] = differing == 0 ? one : first[0];
            first[1] = differing == 0 ? other : first[1];
            differing++;
        }
    }
    if (differing == 0) {
        return;
    }
    sx_buf_print(out, "%u of %u launches %s of another kernel than in ", differing,
                 left->launch_count, differing == 1 ? "is" : "are");
    sxc_put_plain(out, sx_module_string(module, left->name));
    sx_buf_put_text(out, ": ");
    sxc_put_plain(out, sx_module_string(module, first[1]->name));
    if (!put_kernels(module, first[0], first[1], out)) {
        sx_buf_put_text(out, " has the same schedule, and numbers of this interval in its code");
    }
}
