#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "tests/lib/gen_module.h"

static uint8_t *aligned_copy(sx_span bytes)
{
    size_t size = (bytes.len + 63) / 64 * 64;
    uint8_t *copy = aligned_alloc(64, size > 0 ? size : 64);
    ck_assert_ptr_nonnull(copy);
    if (bytes.len > 0) {
        memcpy(copy, bytes.ptr, bytes.len);
    }
    return copy;
}

static void gen_rich(sx_ctx *cx, sx_buf *bytes)
{
    sx_gen_module_tables tables;
    sx_gen_module_make_rich(&tables);
    sx_gen_module_encode(cx, &tables, bytes);
}

START_TEST(test_round_trip)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes, again;
    sx_buf_init(&bytes, 1 << 24);
    sx_buf_init(&again, 1 << 24);
    gen_rich(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    ck_sx_ok(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module));
    ck_assert_uint_eq(module.tensor_count, 9);
    ck_assert(sx_span_is(sx_module_string(&module, module.tensor[0].name), "x"));
    ck_sx_ok(&cx, sx_module_encode(&cx, &module, &again));
    ck_assert(sx_span_equal(sx_buf_span(&bytes), sx_buf_span(&again)));
    free(copy);
    sx_buf_fini(&bytes);
    sx_buf_fini(&again);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_every_truncation_is_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 22);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    gen_rich(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    for (size_t size = 0; size < bytes.len; size++) {
        ck_assert_int_eq(sx_module_decode(&cx, (sx_span){copy, size}, true, &module), SX_CORRUPT);
        sx_ctx_reset_error(&cx);
    }
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* Every bit of the file counts: the sections, what lies between them, and the header. */
START_TEST(test_every_flipped_bit_is_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    gen_rich(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    sx_rng rng = {sx_test_seed()};
    for (uint32_t round = 0; round < 4000; round++) {
        size_t at = (size_t)sx_rng_below(&rng, bytes.len);
        uint8_t bit = (uint8_t)(1u << sx_rng_below(&rng, 8));
        copy[at] ^= bit;
        sx_code code = sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module);
        ck_assert_msg(code == SX_CORRUPT, "bit %u of byte %zu: %s", bit, at, sx_code_name(code));
        sx_ctx_reset_error(&cx);
        copy[at] ^= bit;
    }
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- other versions, and a file that is laid out otherwise ---- */

typedef struct {
    sx_module_header header;
    sx_module_section section[SX_MODULE_SECTION_COUNT];
} front;

/* Makes the checksum of the section table right. */
static void mend(front *f)
{
    sx_hash128 table = sx_hash128_of((sx_span){(const uint8_t *)f->section, sizeof(f->section)});
    f->header.digest[0] = table.low;
    f->header.digest[1] = table.high;
}

#define LAYOUT_FAULTS(FAULT)                                                                    \
    FAULT(old_version, f->header.version = 11,                                                  \
          "module format 11, this program reads 12; compile it again")                          \
    FAULT(new_version, f->header.version = 13,                                                  \
          "module format 13, this program reads 12; it was made by a newer program")            \
    FAULT(magic, f->header.magic[0] = 'X', "not a module")                                      \
    FAULT(header_zero, f->header.zero[23] = 1, "byte 63 of the header is not zero")             \
    FAULT(section_count, f->header.section_count = 3, "3 sections")                             \
    FAULT(file_size, f->header.file_size++, "header says")                                      \
    FAULT(table_digest, f->header.digest[0]++, "checksum of the section table")                 \
    FAULT(section_kind, f->section[2].kind = 3, "expected symbols")                             \
    FAULT(record_size, f->section[SX_MODULE_TENSORS].record_size = 104, "records of 104 bytes") \
    FAULT(section_moved, f->section[SX_MODULE_TENSORS].offset += 64, "module section tensors")  \
    FAULT(section_overlaps, f->section[SX_MODULE_LAUNCHES].offset -= 64,                        \
          "module section launches")                                                            \
    FAULT(section_long, f->section[SX_MODULE_EXTENTS].size += 64, "module section extents")     \
    FAULT(section_ragged, f->section[SX_MODULE_EXTENTS].size -= 8, "module section extents")    \
    FAULT(section_short, f->section[SX_MODULE_EXTENTS].size = 0, "checksum differs")            \
    FAULT(section_digest, f->section[SX_MODULE_PARTS].digest[1]++, "parts: checksum differs")

typedef struct {
    const char *name;
    void (*make)(front *f);
    const char *text;
} layout_fault;
#define FAULT(name, statement, text)    \
    static void layout_##name(front *f) \
    {                                   \
        statement;                      \
    }
LAYOUT_FAULTS(FAULT)
#undef FAULT
static const layout_fault layout_faults[] = {
#define FAULT(name, statement, text) {#name, layout_##name, text},
    LAYOUT_FAULTS(FAULT)
#undef FAULT
};

START_TEST(test_layout_faults_are_refused)
{
    const layout_fault *fault = &layout_faults[_i];
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    gen_rich(&cx, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    front f;
    memcpy(&f, copy, sizeof(f));
    bool digest = strcmp(fault->name, "table_digest") == 0;
    fault->make(&f);
    if (!digest) {
        mend(&f);
    }
    memcpy(copy, &f, sizeof(f));
    sx_module module;
    ck_sx_fails(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module), SX_CORRUPT,
                fault->text);
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_bytes_behind_the_last_section_are_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    gen_rich(&cx, &bytes);
    sx_module_header header;
    memcpy(&header, bytes.ptr, sizeof(header));
    sx_buf_put_u8(&bytes, 0);
    header.file_size++;
    memcpy(bytes.ptr, &header, sizeof(header));
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    ck_sx_fails(&cx, sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module), SX_CORRUPT,
                "the last section ends at");
    free(copy);
    sx_buf_fini(&bytes);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- faults behind correct checksums: one for each check of a record ---- */

#define L(number) t->launch[number]
/* A launch inside of a loop, from a tensor of one element to one of 64. */
#define PIECE(which) L(3).kind = (which), L(3).kernel = SX_MODULE_NONE, t->arg[5] = SX_GEN_T
/* Launch 1 as a collective of two ranks along the axis "x". */
#define TOGETHER(which)                                                                        \
    L(1).kind = SX_LAUNCH_COLLECTIVE, L(1).kernel = SX_MODULE_NONE, L(1).value = (which),      \
    L(1).pair_count = (which) == SX_COLLECTIVE_PERMUTE ? 2 : 0,                                \
    L(1).name = (sx_module_text){0, 1}, t->axes = 1, t->axis[0] = (sx_module_axis){{0, 1}, 2}, \
    t->pairs = 2, t->pair[0] = (sx_module_pair){0, 1}, t->pair[1] = (sx_module_pair)           \
    {                                                                                          \
        1, 0                                                                                   \
    }
#define RECORD_FAULTS(FAULT)                                                                       \
    FAULT(arena, t->info.arena_bytes = SX_MODULE_BYTES_MAX + 1, "arena of")                        \
    FAULT(persistent, t->info.persistent_bytes = SX_MODULE_BYTES_MAX + 1, "persistent area of")    \
    FAULT(state, t->info.state_bytes = SX_MODULE_BYTES_MAX + 1, "state of")                        \
    FAULT(workspace, t->info.workspace_bytes = SX_MODULE_BYTES_MAX + 1, "workspace of")            \
    FAULT(numerics, t->info.numerics = 9, "numerics contract 9")                                   \
    FAULT(arch, t->info.arch = 7, "architecture 7, level 3")                                       \
    FAULT(level, t->info.level = 9, "architecture 1, level 9")                                     \
    FAULT(no_variant, t->variants = 0, "no variant for")                                           \
    FAULT(symbol_ranges, t->symbol[0].range_count = 3, "symbol 0: ranges 0 and 3 more")            \
    FAULT(symbol_empty, t->symbol[0].range_count = 0, "symbol 0: ranges 0 and 0 more")             \
    FAULT(range_zero, t->range[0].low = 0, "range 0 is 0 to 8")                                    \
    FAULT(range_turned, t->range[0].high = 0, "range 0 is 1 to 0")                                 \
    FAULT(range_order, t->range[1].low = 8, "range 1 is 8 to 64")                                  \
    FAULT(range_step, t->range[1].step = 0, "step 0")                                              \
    FAULT(range_misses_end, t->range[1].step = 17, "step 17")                                      \
    FAULT(range_large, t->range[1].high = INT64_MAX, "range 1 is 16 to")                           \
    FAULT(guard_kind, t->guard[0].kind = 9, "guard 0: kind 9")                                     \
    FAULT(guard_symbol, t->guard[0].subject = 1, "guard 0: kind 1 of subject 1")                   \
    FAULT(guard_divisor, t->guard[0].low = 0, "guard 0")                                           \
    FAULT(guard_high, t->guard[0].high = 1, "guard 0")                                             \
    FAULT(guard_range, t->guard[2].high = 0, "guard 2")                                            \
    FAULT(guard_level, t->guard[1].low = 5, "guard 1")                                             \
    FAULT(guard_arch, t->guard[1].subject = 0, "guard 1")                                          \
    FAULT(variant_guards, t->variant[1].guard_count = 2, "variant 1: guards 2 and 2 more")         \
    FAULT(variant_launches, t->variant[1].launch_first = 6, "variant 1: launches 6")               \
    FAULT(variant_long, t->variant[1].launch_count = 5, "variant 1: launches 7 and 5 more")        \
    FAULT(variant_short, t->variant[1].launch_count = 3, "11 launches, its variants have 10")      \
    FAULT(variant_area, t->variant[1].persistent_bytes = 128, "variant 1: 128 persistent bytes")   \
    FAULT(variant_areas_overlap, t->variant[0].persistent_bytes = 192, "variant 1: 64 persist")    \
    FAULT(variant_area_ragged, t->variant[1].persistent_offset = 100, "variant 1: 64 persistent")  \
    FAULT(tensor_place, t->tensor[0].place = 7, "tensor 0: place 7")                               \
    FAULT(tensor_rank, t->tensor[0].rank = 9, "tensor 0: place 0, rank 9")                         \
    FAULT(tensor_element, t->tensor[0].element_bytes = 0, "element of 0 bytes")                    \
    FAULT(tensor_wide, t->tensor[0].element_bytes = 17, "element of 17 bytes")                     \
    FAULT(tensor_extent, t->tensor[0].dim[0] = -1, "tensor 0: extent -1 of dimension 0")           \
    FAULT(tensor_overflow, t->tensor[0].dim[0] = INT64_MAX, "tensor 0: extent")                    \
    FAULT(tensor_small, t->tensor[0].size = 8, "tensor 0: 8 bytes, its shape has 256")             \
    FAULT(tensor_large, t->tensor[0].size = SX_MODULE_BYTES_MAX + 1, "tensor 0")                   \
    FAULT(tensor_misaligned, t->tensor[SX_GEN_W].offset = 4, "tensor 1: 4 bytes at 4")             \
    FAULT(weight_outside, t->tensor[SX_GEN_W].offset = 64, "tensor 1: 4 bytes at 64")              \
    FAULT(temporary_outside, t->tensor[SX_GEN_T].offset = 128, "its area is 0 to 320")             \
    FAULT(state_outside, t->tensor[SX_GEN_S].offset = 128, "its area is 0 to 128")                 \
    FAULT(persistent_before, t->tensor[SX_GEN_P].offset = 64, "its area is 128 to 192")            \
    FAULT(persistent_behind, t->tensor[SX_GEN_P].offset = 192, "its area is 128 to 192")           \
    FAULT(temporary_of_all, t->tensor[SX_GEN_T].variant = SX_MODULE_NONE, "temporary of variant")  \
    FAULT(input_of_one, t->tensor[0].variant = 0, "tensor 0: input of variant 0")                  \
    FAULT(initial_outside, t->tensor[SX_GEN_S].initial = 64, "tensor 5: first value of a state")   \
    FAULT(initial_ragged, t->tensor[SX_GEN_S].initial = 4, "tensor 5: first value of a state")     \
    FAULT(initial_of_input, t->tensor[0].initial = 0, "tensor 0: first value of a input")          \
    FAULT(alias_of_input, t->tensor[0].alias = SX_GEN_D, "tensor 0: a input in place of")          \
    FAULT(alias_to_output, t->tensor[SX_GEN_Z].alias = SX_GEN_Y, "tensor 3: a output in place of") \
    FAULT(alias_outside, t->tensor[SX_GEN_Z].alias = 99, "in place of tensor 99")                  \
    FAULT(alias_dtype, t->tensor[SX_GEN_Z].dtype = 7, "element type 7 and 16 bytes, that has 1")   \
    FAULT(alias_size, t->tensor[SX_GEN_D].size = 20, "and 16 bytes, that has 1 and 20")            \
    FAULT(alias_follows, t->tensor[SX_GEN_Y].alias = SX_GEN_D, "and 256 bytes, that has 1 and 16") \
    FAULT(alias_twice, (t->tensor[SX_GEN_X] = t->tensor[SX_GEN_Z], t->extents = 0),                \
          "in place of tensor 4, as tensor 0 is")                                                  \
    FAULT(extent_what, t->extent[2].what = 3, "extent 2: row 0 of dimension 2 of kind 3")          \
    FAULT(extent_order, t->extent[1] = t->extent[0], "extent 1: row 0")                            \
    FAULT(extent_symbol, t->extent[0].symbol = 1, "follows symbols 1 and 4294967295 by")           \
    FAULT(extent_scale, t->extent[0].scale = 0, "by 0 / 1")                                        \
    FAULT(extent_divisor, t->extent[2].divisor = 0, "by 1 / 0")                                    \
    FAULT(extent_divided, t->extent[0].divisor = 2, "by 1 / 2")                                    \
    FAULT(extent_dimension, t->extent[0].dimension = 1, "dimension 1 of kind 0")                   \
    FAULT(extent_tensor, t->extent[1].index = SX_GEN_T, "row 6 of dimension 0")                    \
    FAULT(extent_part, t->extent[2].index = 3, "row 3 of dimension 2")                             \
    FAULT(extent_loop, (t->extent[2] = (sx_module_extent){2, 0, 0, 0, 1, 1, SX_MODULE_NONE}),      \
          "of kind 2")                                                                             \
    FAULT(extent_largest, t->extent[0].scale = 2, "2 to 128, the record has 64")                   \
    FAULT(extent_overflow, t->extent[0].scale = INT64_MAX, "the record has 64")                    \
    FAULT(extent_number, t->extent[0].symbol = SX_MODULE_NONE, "by 1 / 1")                         \
    FAULT(extent_sum, (t->extent[1] = t->extent[0], t->extent[1].symbol = SX_MODULE_NONE),         \
          "extent 1: 1 / 1 of symbols 4294967295 and 4294967295: 2 to 65, the record has 64")      \
    FAULT(extent_nothing,                                                                          \
          (t->extent[1] = t->extent[0], t->extent[1].symbol = SX_MODULE_NONE,                      \
           t->extent[1].scale = -1, t->tensor[SX_GEN_X].dim[0] = 63,                               \
           t->tensor[SX_GEN_X].size = t->tensor[SX_GEN_X].size / 64 * 63),                         \
          "0 to 63, the record has 63")                                                            \
    FAULT(part_entry, t->part[0].entry = 1 << 20, "part 0: entry")                                 \
    FAULT(part_grid, t->part[1].grid[1] = 0, "part 1")                                             \
    FAULT(part_overflow, (t->part[1].grid[0] = INT64_MAX, t->part[1].grid[1] = 2), "part 1")       \
    FAULT(part_threads, t->part[0].threads = 48, "a block of 48 threads with 0 bytes")             \
    FAULT(part_many_threads, t->part[0].threads = 1056, "a block of 1056 threads")                 \
    FAULT(part_shared, (t->part[0].threads = 64, t->part[0].shared_bytes = 232449),                \
          "a block of 64 threads with 232449 bytes")                                               \
    FAULT(part_shared_of_none, t->part[0].shared_bytes = 4, "a block of 0 threads with 4 bytes")   \
    FAULT(part_blocks, (t->part[1].threads = 32, t->part[1].grid[1] = INT64_C(1) << 31),           \
          "part 1: 1 x 2147483648 x 1 blocks, a launch has at most 65535 x 65535 x 2147483647")    \
    FAULT(part_walkers, t->part[0].walkers = 3, "3 blocks of 0 threads that walk")                 \
    FAULT(part_many_walkers, (t->part[0].threads = 32, t->part[0].walkers = UINT32_C(1) << 31),    \
          "2147483648 blocks of 32 threads that walk")                                             \
    FAULT(part_zero, t->part[0].zero = 1, "zero is 1")                                             \
    FAULT(part_of_processor, t->part[1].threads = 32,                                              \
          "kernel 1: part 0: a block of 32 threads, in code for x86-64")                           \
    FAULT(kernel_kind, t->kernel[0].kind = 99, "kernel 0: kind 99")                                \
    FAULT(kernel_parts, t->kernel[2].part_count = 2, "kernel 2: kind 0, parts 2 and 2 more")       \
    FAULT(kernel_no_parts, t->kernel[0].part_count = 0, "parts 0 and 0 more")                      \
    FAULT(kernel_args, t->kernel[0].arg_count = 66, "kernel 0: 1 results of 66")                   \
    FAULT(kernel_results, t->kernel[0].result_count = 3, "kernel 0: 3 results of 2")               \
    FAULT(kernel_no_result, t->kernel[0].result_count = 0, "kernel 0: 0 results of 2")             \
    FAULT(kernel_nodes, t->kernel[0].result_count = 2,                                             \
          "kernel 0: result 1 of 2 is node 4294967295")                                            \
    FAULT(kernel_other, t->kernel[0].other[1] = 5, "kernel 0: result 2 of 1 is node 5")            \
    FAULT(kernel_same_node, (t->kernel[0].result_count = 2, t->kernel[0].other[0] = 0),            \
          "kernel 0: result 1 of 2 is node 0")                                                     \
    FAULT(kernel_zero, t->kernel[0].zero = 1, "kernel 0: 1 results, at most 4")                    \
    FAULT(kernel_form, t->kernel[0].form = 0, "code of form 0")                                    \
    FAULT(kernel_form_arch, t->kernel[0].form = SX_FORM_PTX, "code of form 2 for architecture 1")  \
    FAULT(kernel_arch, t->kernel[0].arch = 0, "for architecture 0")                                \
    FAULT(kernel_level, t->kernel[0].level = 2, "architecture 1, level 2")                         \
    FAULT(kernel_code, t->kernel[0].code_size = 32, "32 bytes of code at 0, section has 31")       \
    FAULT(kernel_code_behind, t->kernel[0].code_offset = 32, "31 bytes of code at 32")             \
    FAULT(kernel_entry, t->kernel[0].code_offset = t->kernel[0].code_size = 1,                     \
          "part 0 begins at 0, its code is 1 bytes at 1")                                          \
    FAULT(arg_tensor, t->arg[0] = 77, "argument 0: tensor 77, module has 9")                       \
    FAULT(launch_kind, L(0).kind = SX_LAUNCH_KIND_COUNT, "launch 0 (unknown): kind 10")            \
    FAULT(launch_args, L(10).arg_first = 16, "launch 10 (kernel): arguments 16 and 2 more of 17")  \
    FAULT(launch_prologue, L(1).prologue = 2, "prologue 2")                                        \
    FAULT(launch_kernel_of_copy, L(1).kernel = 0, "launch 1 (copy): kernel 0")                     \
    FAULT(launch_value_of_copy, L(1).value = 1, "value 1")                                         \
    FAULT(launch_name_of_copy, L(1).name.size = 1, "name of 1 letters")                            \
    FAULT(launch_body_of_copy, L(1).body = 1, "body 1")                                            \
    FAULT(launch_of_other, t->arg[0] = SX_GEN_P, "is tensor 8 of variant 1, the launch is of")     \
    FAULT(kernel_number, L(3).kernel = 3, "launch 3 (kernel): kernel 3, module has 3")             \
    FAULT(kernel_arg_count, L(3).arg_count = 1, "launch 3 (kernel): 1 arguments, kernel 0 has 2")  \
    FAULT(kernel_machine, t->kernel[1].level = 4,                                                  \
          "kernel 1 needs x86-64-v4, variant 0 is for x86-64-v3")                                  \
    FAULT(writes_weight, t->arg[7] = SX_GEN_W, "writes tensor 1, a weight, in a run")              \
    FAULT(writes_input, t->arg[7] = SX_GEN_X, "writes tensor 0, a input, in a run")                \
    FAULT(writes_persistent, L(7).prologue = 0, "writes tensor 8, a persistent, in a run")         \
    FAULT(load_writes_output, L(8).prologue = 1, "writes tensor 2, a output, in the prologue")     \
    FAULT(load_writes_state, L(9).prologue = 1, "writes tensor 5, a state, in the prologue")       \
    FAULT(copy_args, L(1).arg_count = 1, "launch 1 (copy): 1 arguments, expected 2")               \
    FAULT(copy_small, t->arg[1] = SX_GEN_W, "tensor 1 of 4 bytes to tensor 2 of 256")              \
    FAULT(copy_itself, t->arg[1] = SX_GEN_Y, "tensor 2 of 256 bytes to tensor 2")                  \
    FAULT(copy_types, t->tensor[SX_GEN_T].dtype = 7, "element types 7 and 1")                      \
    FAULT(copy_follows, (t->extent[1] = t->extent[2], t->extents = 2),                             \
          "launch 8 (copy): tensor 0 of 256 bytes to tensor 2")                                    \
    FAULT(fill_args, L(0).arg_count = 2, "launch 0 (fill): 2 arguments, expected 1")               \
    FAULT(fill_value, L(0).value = UINT64_C(1) << 32, "for elements of 4 bytes")                   \
    FAULT(loop_never, L(2).value = 0, "launch 2 (loop): 0 rounds")                                 \
    FAULT(loop_long, L(2).value = UINT64_MAX, "launch 2 (loop)")                                   \
    FAULT(loop_no_body, L(4).body = 0, "launch 4 (loop): kernel")                                  \
    FAULT(loop_body, L(4).body = 2, "launch 4 (loop): body of 2 launches, 1 are left")             \
    FAULT(loop_counter, t->arg[3] = SX_GEN_T, "counts in tensor 6")                                \
    FAULT(loop_load, L(5).prologue = 1, "launch 5 (kernel)")                                       \
    FAULT(slice_outside,                                                                           \
          (L(1).kind = SX_LAUNCH_SLICE, t->arg[1] = SX_GEN_W, t->arg[2] = SX_GEN_T),               \
          "launch 1 (slice): of 2 arguments, not directly in a loop")                              \
    FAULT(slice_beyond, PIECE(SX_LAUNCH_SLICE),                                                    \
          "launch 3 (slice): 3 rounds, tensor 1 of 4 bytes has pieces of 256")                     \
    FAULT(row_beyond, (PIECE(SX_LAUNCH_ROW), L(2).value = 65),                                     \
          "launch 3 (row): 65 rounds, tensor 6 of 256 bytes has pieces of 4")                      \
    FAULT(row_follows, (PIECE(SX_LAUNCH_ROW), t->arg[5] = SX_GEN_Y, L(2).value = 65),              \
          "65 rounds, tensor 2 of")                                                                \
    FAULT(row_kernel, L(3).kind = SX_LAUNCH_ROW, "launch 3 (row): kernel 0")                       \
    FAULT(row_value, (PIECE(SX_LAUNCH_ROW), L(3).value = 1),                                       \
          "launch 3 (row): kernel 4294967295, body 0, value 1")                                    \
    FAULT(row_args, (PIECE(SX_LAUNCH_ROW), L(3).arg_count = 1),                                    \
          "launch 3 (row): 1 arguments, expected 2")                                               \
    FAULT(row_types, (PIECE(SX_LAUNCH_ROW), t->tensor[SX_GEN_W].dtype = 7),                        \
          "launch 3 (row): from tensor 1 to tensor 6, element types 7 and 1")                      \
    FAULT(row_of_input, (PIECE(SX_LAUNCH_ROW), t->arg[5] = SX_GEN_D),                              \
          "writes tensor 4, a input, in a run")                                                    \
    FAULT(host_name, (L(0).kind = SX_LAUNCH_HOST, L(0).value = 0), "launch 0 (host call)")         \
    FAULT(host_results, (L(0).kind = SX_LAUNCH_HOST, L(0).name.size = 1, L(0).value = 2),          \
          "launch 0 (host call): 2 results of 1")                                                  \
    FAULT(collective, (TOGETHER(SX_COLLECTIVE_COUNT)), "launch 1 (collective): collective 6")      \
    FAULT(collective_args, (TOGETHER(SX_COLLECTIVE_PERMUTE), L(1).arg_count = 1),                  \
          "launch 1 (collective): collective 4 of 1 arguments")                                    \
    FAULT(collective_axis, (TOGETHER(SX_COLLECTIVE_PERMUTE), L(1).name.size = 2),                  \
          "along an axis of 2 letters, which the module has not")                                  \
    FAULT(collective_same, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->arg[1] = t->arg[2]),               \
          "permute of 2 ranks from tensor 2 of 256 bytes to tensor 2")                             \
    FAULT(gather_size, TOGETHER(SX_COLLECTIVE_ALL_GATHER),                                         \
          "all-gather of 2 ranks from tensor 6 of 256 bytes to tensor 2 of 256")                   \
    FAULT(scatter_size, TOGETHER(SX_COLLECTIVE_REDUCE_SCATTER), "reduce-scatter of 2 ranks from")  \
    FAULT(index_size,                                                                              \
          (TOGETHER(SX_COLLECTIVE_AXIS_INDEX), L(1).arg_first = 1, L(1).arg_count = 1),            \
          "axis-index of 2 ranks from")                                                            \
    FAULT(combine_unknown, (TOGETHER(SX_COLLECTIVE_ALL_REDUCE), L(1).combine = 4),                 \
          "all-reduce combines by 4")                                                              \
    FAULT(combine_of_permute, (TOGETHER(SX_COLLECTIVE_PERMUTE), L(1).combine = 1),                 \
          "permute combines by 1")                                                                 \
    FAULT(pairs_of_reduce, (TOGETHER(SX_COLLECTIVE_ALL_REDUCE), L(1).pair_count = 1),              \
          "all-reduce combines by 0; 1 pairs from 0 on of 2")                                      \
    FAULT(pairs_beyond, (TOGETHER(SX_COLLECTIVE_PERMUTE), L(1).pair_count = 3),                    \
          "3 pairs from 0 on of 2")                                                                \
    FAULT(pair_rank, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->pair[1].target = 2),                     \
          "pair 1 is 1 to 2, of 2 ranks")                                                          \
    FAULT(pair_order, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->pair[1].source = 0),                    \
          "pair 1 is 0 to 0, of 2 ranks")                                                          \
    FAULT(pair_twice, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->pair[1].target = 1),                    \
          "pair 1 is 1 to 1, of 2 ranks")                                                          \
    FAULT(axis_name, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->axis[0].name.size = 0),                  \
          "axis 0: its name is empty, or another's")                                               \
    FAULT(axis_twice, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->axes = 2, t->axis[1] = t->axis[0]),     \
          "axis 1: its name is empty, or another's")                                               \
    FAULT(axis_size, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->axis[0].size = 0),                       \
          "axis 0: 0 ranks, at most 1048576 in all")                                               \
    FAULT(axis_large, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->axis[0].size = 1048577),                \
          "axis 0: 1048577 ranks, at most 1048576 in all")                                         \
    FAULT(axis_many, (TOGETHER(SX_COLLECTIVE_PERMUTE), t->axes = 5), "axes: 5, at most 4")         \
    FAULT(hole_divisor, t->guard[0].low = 32, "none of 2 serves n=16 on x86-64-v3")                \
    FAULT(hole_range, t->guard[2].high = 6, "none of 2 serves n=7 on x86-64-v3")                   \
    FAULT(hole_equal, (t->guard[2].kind = SX_GUARD_EQUAL, t->guard[2].high = 0),                   \
          "none of 2 serves n=2 on x86-64-v3")                                                     \
    FAULT(hole_machine, t->guard[1].low = 4, "none of 2 serves n=16 on x86-64-v3")                 \
    FAULT(hole_period, (t->guard[0].low = 65537), "no common multiple")

typedef struct {
    const char *name;
    void (*make)(sx_gen_module_tables *t);
    const char *text;
} record_fault;
#define FAULT(name, statement, text)                  \
    static void fault_##name(sx_gen_module_tables *t) \
    {                                                 \
        statement;                                    \
    }
RECORD_FAULTS(FAULT)
#undef FAULT
static const record_fault record_faults[] = {
#define FAULT(name, statement, text) {#name, fault_##name, text},
    RECORD_FAULTS(FAULT)
#undef FAULT
};

static sx_code decode_tables(sx_ctx *cx, const sx_gen_module_tables *tables)
{
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    sx_gen_module_encode(cx, tables, &bytes);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    sx_module module;
    sx_code code = sx_module_decode(cx, (sx_span){copy, bytes.len}, true, &module);
    free(copy);
    sx_buf_fini(&bytes);
    return code;
}

START_TEST(test_record_faults_are_refused)
{
    const record_fault *fault = &record_faults[_i];
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_tables tables;
    sx_gen_module_make_rich(&tables);
    fault->make(&tables);
    sx_code code = decode_tables(&cx, &tables);
    ck_assert_msg(code == SX_CORRUPT && strstr(cx.error.text, fault->text) != NULL, "%s: %s: %s",
                  fault->name, sx_code_name(code), cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- machine code beside PTX ---- */

#define C(number) t->cubin[number]
#define CUBIN_FAULTS(FAULT)                                                                   \
    FAULT(kernel, C(2).kernel = 3, "cubin 2: of kernel 3, part 2, for level 80")              \
    FAULT(of_other, C(1).kernel = 0, "cubin 1: of kernel 0, part 1")                          \
    FAULT(part, C(1).part = 0, "cubin 1: of kernel 1, part 0")                                \
    FAULT(level, C(0).level = 81, "cubin 0: of kernel 0, part 0, for level 81")               \
    FAULT(below, C(0).level = 75, "cubin 0: of kernel 0, part 0, for level 75")               \
    FAULT(empty, C(0).size = 0, "cubin 0: 0 bytes at")                                        \
    FAULT(ragged, C(0).offset += 8, "cubin 0: 64 bytes at")                                   \
    FAULT(outside, C(0).size += 64, "cubin 0: 128 bytes at")                                  \
    FAULT(behind, C(1).offset = 1 << 20, "cubin 1: 64 bytes at 1048576")                      \
    FAULT(far, C(1).offset = UINT64_MAX - 63, "cubin 1: 64 bytes at")                         \
    FAULT(order, (C(3) = C(0), t->cubins = 4), "cubin 3: part 0 for level 80, behind part 2") \
    FAULT(twice, (C(3) = C(2), t->cubins = 4), "cubin 3: part 2 for level 80, behind part 2") \
    FAULT(levels, (C(3) = C(2), C(2).level = 90, t->cubins = 4),                              \
          "for level 80, behind part 2 for level 90")                                         \
    FAULT(toolchain, C(0).toolchain = ((sx_module_text){17, 0}), "cubins 0: toolchain is text of")
#define FAULT(name, statement, text)                        \
    static void fault_cubin_##name(sx_gen_module_tables *t) \
    {                                                       \
        statement;                                          \
    }
CUBIN_FAULTS(FAULT)
#undef FAULT
static const record_fault cubin_faults[] = {
#define FAULT(name, statement, text) {#name, fault_cubin_##name, text},
    CUBIN_FAULTS(FAULT)
#undef FAULT
};

/* 64 bytes that are no cubin: the tables alone are looked at here (tests/client/runtime reads the bytes). */
static void make_with_cubins(sx_gen_module_tables *tables)
{
    static const uint8_t bytes[64] = {1};
    sx_gen_module_make_rich(tables);
    sx_gen_module_for_gpu(tables, (sx_span){bytes, sizeof(bytes)});
}

START_TEST(test_cubin_faults_are_refused)
{
    const record_fault *fault = &cubin_faults[_i];
    sx_gen_module_tables tables;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    make_with_cubins(&tables);
    ck_sx_ok(&cx, decode_tables(&cx, &tables));
    fault->make(&tables);
    sx_code code = decode_tables(&cx, &tables);
    ck_assert_msg(code == SX_CORRUPT && strstr(cx.error.text, fault->text) != NULL, "%s: %s: %s",
                  fault->name, sx_code_name(code), cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_cubin_of_a_processors_kernel)
{
    sx_gen_module_tables tables;
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_make_rich(&tables);
    tables.cubin[0] = (sx_module_cubin){.level = 80, .size = 8};
    tables.cubins = 1;
    ck_sx_fails(&cx, decode_tables(&cx, &tables), SX_CORRUPT, "cubin 0: of kernel 0, part 0");
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(test_cubin_of_a_part)
{
    sx_gen_module_tables tables;
    make_with_cubins(&tables);
    tables.cubin[3] = tables.cubin[2];
    tables.cubin[3].level = 90;
    tables.cubins = 4;
    sx_module module = sx_gen_module_view(&tables);
    for (uint32_t p = 0; p < 4; p++) {
        const sx_module_cubin *row = sx_module_cubin_of(&module, p, 80);
        ck_assert_ptr_eq(row, p < 3 ? &tables.cubin[p] : NULL);
        row = sx_module_cubin_of(&module, p, 90);
        ck_assert_ptr_eq(row, p == 2 ? &tables.cubin[3] : NULL);
        ck_assert_ptr_null(sx_module_cubin_of(&module, p, 89));
    }
}
END_TEST

/* Every field that names text, outside STRINGS. */
START_TEST(test_text_outside_the_strings_is_refused)
{
    sx_gen_module_tables t;
    sx_module_text *const text[] = {
        &t.info.name,       &t.info.target,       &t.info.toolchain,  &t.symbol[0].name,
        &t.variant[1].name, &t.tensor[8].name,    &t.kernel[2].name,  &t.kernel[2].what,
        &t.kernel[2].plan,  &t.kernel[2].verdict, &t.launch[10].name, &t.stage.name,
        &t.stage.stop,      &t.rewrite.rule,      &t.rewrite.before,  &t.rewrite.after,
        &t.check.name,      &t.search.stop,       &t.search.unproved, &t.rule.name,
        &t.rule.rule_class, &t.point.program,     &t.sharding.mesh,   &t.step.value,
        &t.step.what,       &t.step.axis,         &t.step.from,       &t.step.to,
        &t.step.places,     &t.step.local};
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    for (uint32_t i = 0; i < SX_COUNT(text); i++) {
        sx_gen_module_make_rich(&t);
        *text[i] = (sx_module_text){10, 7};
        ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, "is text of 7 bytes at 10");
        *text[i] = (sx_module_text){17, 0};
        ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, "is text of 0 bytes at 17");
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- branches and whiles ---- */

#define CHOICE_FAULTS(FAULT)                                                                       \
    FAULT(branch_args, L(1).arg_count = 0, "launch 1 (branch): 0 arguments, expected 1")           \
    FAULT(branch_two_args, L(1).arg_count = 2, "launch 1 (branch): 2 arguments, expected 1")       \
    FAULT(branch_number, t->arg[1] = SX_GEN_CHOICE_W,                                              \
          "launch 1 (branch): asks tensor 1 of 4 bytes, element type 1; expected one bool")        \
    FAULT(branch_byte, t->tensor[SX_GEN_CHOICE_P].dtype = 9,                                       \
          "launch 1 (branch): asks tensor 0 of 1 bytes, element type 9")                           \
    FAULT(branch_many, TRUTHS(SX_GEN_CHOICE_P),                                                    \
          "launch 1 (branch): asks tensor 0 of 2 bytes, element type 10; expected one bool")       \
    FAULT(branch_first, L(1).first = 4, "launch 1 (branch): 1 arguments, expected 1; the first 4") \
    FAULT(branch_nothing, (L(1).first = L(1).body = 0), "launch 1 (branch): kernel 4294967295")    \
    FAULT(branch_value, L(1).value = 1, "launch 1 (branch): kernel 4294967295, body 3, value 1")   \
    FAULT(branch_kernel, L(1).kernel = 0, "launch 1 (branch): kernel 0")                           \
    FAULT(branch_name, L(1).name.size = 1, "name of 1 letters")                                    \
    FAULT(branch_combine, L(1).combine = 1, "launch 1 (branch): kernel 4294967295")                \
    FAULT(branch_beyond, (L(1).body = 9), "launch 1 (branch): body of 9 launches, 8 are left")     \
    FAULT(branch_prologue, L(3).prologue = 1, "launch 3 (kernel)")                                 \
    FAULT(while_args, L(6).arg_count = 0, "launch 6 (while): 0 arguments, expected 1")             \
    FAULT(while_number, t->arg[10] = SX_GEN_CHOICE_Y, "launch 6 (while): asks tensor 2 of 16")     \
    FAULT(while_first, L(6).first = 4, "launch 6 (while): 1 arguments, expected 1; the first 4")   \
    FAULT(while_rounds, L(6).value = 0, "launch 6 (while): 0 rounds, 1 to 2147483648")             \
    FAULT(while_long, L(6).value = (UINT64_C(1) << 31) + 1, "launch 6 (while): 2147483649 rounds") \
    FAULT(while_kernel, L(6).kernel = 0, "launch 6 (while): kernel 0")                             \
    FAULT(while_pairs, L(6).pair_count = 1, "launch 6 (while): kernel 4294967295")                 \
    FAULT(while_beyond, L(6).body = 4, "launch 6 (while): body of 4 launches, 3 are left")         \
    FAULT(while_prologue, L(8).prologue = 1, "launch 8 (kernel)")                                  \
    FAULT(while_writes_weight, t->arg[12] = SX_GEN_CHOICE_W, "writes tensor 1, a weight")          \
    FAULT(first_of_copy, L(5).first = 1, "launch 5 (copy): kernel 4294967295")                     \
    FAULT(first_of_fill, L(9).first = 1, "launch 9 (fill): kernel 4294967295")                     \
    FAULT(pairs_of_kernel, L(7).pair_first = 1, "launch 7 (kernel): kernel 0")                     \
    /* a body that begins in one range and ends in the other */                                    \
    FAULT(both_ranges, LOOP_AT(2, 2), "launch 2 (loop): body of 2 launches, 0 are left")           \
    FAULT(both_ranges_of_while, LOOP_AT(7, 1), "launch 7 (loop): body of 1 launches, 0 are left")  \
    FAULT(beyond_range, LOOP_AT(8, 2), "launch 8 (loop): body of 2 launches, 1 are left")          \
    FAULT(slice_in_branch, SLICE_AT(2), "launch 2 (slice): of 2 arguments, not directly in a")     \
    FAULT(slice_in_while, SLICE_AT(8), "launch 8 (slice): of 2 arguments, not directly in a loop") \
    FAULT(slice_in_branch_in_loop,                                                                 \
          (t->launch[0] = loop_around, t->launch[0].body = 9, SLICE_AT(2)),                        \
          "launch 2 (slice): of 2 arguments, not directly in a loop")

#define L(number) t->launch[number]
#define TRUTHS(number) \
    (t->tensor[number].rank = 1, t->tensor[number].dim[0] = 2, t->tensor[number].size = 2)
#define LOOP_AT(number, launches) \
    (t->launch[number] = loop_around, t->launch[number].body = (launches))
#define SLICE_AT(number) (L(number).kind = SX_LAUNCH_SLICE, L(number).kernel = SX_MODULE_NONE)
static const sx_module_launch loop_around = {
    .kind = SX_LAUNCH_LOOP, .kernel = SX_MODULE_NONE, .value = 2};
#define FAULT(name, statement, text)                   \
    static void choice_##name(sx_gen_module_tables *t) \
    {                                                  \
        statement;                                     \
    }
CHOICE_FAULTS(FAULT)
#undef FAULT
static const record_fault choice_faults[] = {
#define FAULT(name, statement, text) {#name, choice_##name, text},
    CHOICE_FAULTS(FAULT)
#undef FAULT
};

START_TEST(test_wrong_choices_are_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_tables t;
    sx_gen_module_make_choices(&t);
    ck_sx_ok(&cx, decode_tables(&cx, &t));
    choice_faults[_i].make(&t);
    sx_code code = decode_tables(&cx, &t);
    ck_assert_msg(code == SX_CORRUPT && strstr(cx.error.text, choice_faults[_i].text) != NULL,
                  "%s: %s: %s", choice_faults[_i].name, sx_code_name(code), cx.error.text);
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- what variants share: a tensor that not all of them would make alike ---- */

static const sx_module_launch fill_of_shared = {.kind = SX_LAUNCH_FILL,
                                                .kernel = SX_MODULE_NONE,
                                                .prologue = 1,
                                                .arg_first = 1,
                                                .arg_count = 1};
static const sx_module_launch loop_in_prologue = {
    .kind = SX_LAUNCH_LOOP, .kernel = SX_MODULE_NONE, .prologue = 1, .value = 2, .body = 1};
static const sx_module_extent grid_of_first = {SX_EXTENT_PART, 0, 2, 0, 1, 1, SX_MODULE_NONE};

#define SHARED_FAULTS(FAULT)                                                                       \
    FAULT(other_source, t->arg[4] = SX_GEN_SHARED_C, "share, otherwise than launch 0")             \
    FAULT(other_kernel, t->launch[2].kernel = 1, "share, otherwise than launch 0")                 \
    FAULT(other_result, t->arg[5] = SX_GEN_SHARED_Y, "writes tensor 3, a output, in the prologue") \
    FAULT(not_made, t->launch[2] = t->launch[3], "launch 2 (kernel): reads tensor 4, which all")   \
    FAULT(from_itself, t->arg[0] = SX_GEN_SHARED_Q, "launch 0 (kernel): reads tensor 4, which")    \
    FAULT(from_input, t->arg[0] = SX_GEN_SHARED_X, "share, from what not all have")                \
    FAULT(by_a_fill, t->launch[0] = fill_of_shared, "share, from what not all have")               \
    FAULT(in_a_loop, (t->launch[1] = t->launch[0], t->launch[0] = loop_in_prologue),               \
          "launch 1 (kernel): writes tensor 4, which all variants share, from what not all")       \
    FAULT(grid, (t->part[0].grid[2] = 2, t->extents = 3, t->extent[2] = grid_of_first),            \
          "share, from what not all have")                                                         \
    FAULT(outside, t->variant[0].persistent_offset = 0, "at 0, its area is 0 to 0")

#define FAULT(name, statement, text)                   \
    static void shared_##name(sx_gen_module_tables *t) \
    {                                                  \
        statement;                                     \
    }
SHARED_FAULTS(FAULT)
#undef FAULT
static const struct {
    const char *name;
    void (*make)(sx_gen_module_tables *t);
    const char *text;
} shared_faults[] = {
#define FAULT(name, statement, text) {#name, shared_##name, text},
    SHARED_FAULTS(FAULT)
#undef FAULT
};

START_TEST(test_wrong_sharing_is_refused)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_tables t;
    sx_gen_module_make_shared(&t);
    ck_sx_ok(&cx, decode_tables(&cx, &t));
    shared_faults[_i].make(&t);
    ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, shared_faults[_i].text);
    sx_ctx_fini(&cx);
}
END_TEST

/* Loops inside each other, up to the limit and one beyond. */
START_TEST(test_depth_of_loops)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    for (uint32_t depth = SX_MODULE_LOOPS_MAX; depth <= SX_MODULE_LOOPS_MAX + 1; depth++) {
        sx_gen_module_tables t;
        sx_gen_module_make(&t);
        t.launch[depth] = t.launch[0];
        for (uint32_t i = 0; i < depth; i++) {
            t.launch[i] = (sx_module_launch){
                .kind = SX_LAUNCH_LOOP, .kernel = SX_MODULE_NONE, .value = 2, .body = depth - i};
        }
        t.launches = t.variant[0].launch_count = depth + 1;
        if (depth == SX_MODULE_LOOPS_MAX) {
            ck_sx_ok(&cx, decode_tables(&cx, &t));
        } else {
            ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, "8 loops around it, at most 8");
        }
    }
    sx_ctx_fini(&cx);
}
END_TEST

/* ---- holes: against trying every value ---- */

static void draw_variants(sx_rng *rng, sx_gen_module_tables *t)
{
    sx_gen_module_make(t);
    t->symbols = 2;
    t->ranges = 4;
    for (uint32_t s = 0; s < 2; s++) {
        int64_t low = 1 + (int64_t)sx_rng_below(rng, 6), step = 1 + (int64_t)sx_rng_below(rng, 3);
        int64_t high = low + step * (int64_t)sx_rng_below(rng, 5);
        int64_t next = high + 1 + (int64_t)sx_rng_below(rng, 4);
        t->symbol[s] = (sx_module_symbol){{9 + s, 1}, 2 * s, 2};
        t->range[2 * s] = (sx_module_range){low, high, step};
        t->range[2 * s + 1] = (sx_module_range){next, next + 2 * (int64_t)sx_rng_below(rng, 6), 2};
    }
    t->variants = 3;
    t->guards = 8;
    for (uint32_t g = 0; g < t->guards; g++) {
        uint32_t kind = (uint32_t)sx_rng_below(rng, 4);
        int64_t low = 1 + (int64_t)sx_rng_below(rng, kind == SX_GUARD_DIVISIBLE ? 3 : 8);
        int64_t high = low + (int64_t)sx_rng_below(rng, 24);
        t->guard[g] = (sx_module_guard){kind, (uint32_t)sx_rng_below(rng, 2), low,
                                        kind == SX_GUARD_RANGE ? high : 0};
        if (kind == SX_GUARD_MACHINE) {
            t->guard[g].subject = SX_ARCH_X86_64;
            t->guard[g].low = 3 + (int64_t)sx_rng_below(rng, 2);
        }
    }
    for (uint32_t v = 0; v < 3; v++) {
        uint32_t first = (uint32_t)sx_rng_below(rng, 6);
        t->variant[v] = (sx_module_variant){.guard_first = first,
                                            .guard_count = (uint32_t)sx_rng_below(rng, 3),
                                            .launch_first = v == 0 ? 0 : 1,
                                            .launch_count = v == 0 ? 1 : 0};
    }
}

/* Do the guards of a variant hold? The definition of docs/MODULE.md, once more. */
static bool serves(const sx_gen_module_tables *t, uint32_t v, const int64_t value[2])
{
    for (uint32_t i = 0; i < t->variant[v].guard_count; i++) {
        const sx_module_guard *g = &t->guard[t->variant[v].guard_first + i];
        int64_t x = g->kind == SX_GUARD_MACHINE ? 3 : value[g->subject];
        bool holds = (g->kind == SX_GUARD_RANGE && g->low <= x && x <= g->high) ||
                     (g->kind == SX_GUARD_DIVISIBLE && x % g->low == 0) ||
                     (g->kind == SX_GUARD_EQUAL && x == g->low) ||
                     (g->kind == SX_GUARD_MACHINE && g->low <= x);
        if (!holds) {
            return false;
        }
    }
    return true;
}

static bool may_be(const sx_gen_module_tables *t, uint32_t s, int64_t value)
{
    bool may = false;
    for (uint32_t r = 2 * s; r < 2 * s + 2; r++) {
        for (int64_t x = t->range[r].low; x <= t->range[r].high; x += t->range[r].step) {
            may = may || x == value;
        }
    }
    return may;
}

START_TEST(test_holes_are_those_of_brute_force)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 26);
    sx_rng rng = {sx_test_seed()};
    uint32_t holes = 0, covered = 0;
    for (uint32_t round = 0; round < 600; round++) {
        sx_gen_module_tables t;
        draw_variants(&rng, &t);
        bool hole = false;
        for (int64_t a = 1; a < 60; a++) {
            for (int64_t b = 1; may_be(&t, 0, a) && b < 60; b++) {
                const int64_t value[2] = {a, b};
                hole = hole || (may_be(&t, 1, b) && !serves(&t, 0, value) &&
                                !serves(&t, 1, value) && !serves(&t, 2, value));
            }
        }
        sx_code code = decode_tables(&cx, &t);
        ck_assert_msg(code == (hole ? SX_CORRUPT : SX_OK), "round %u: %s, %s", round,
                      hole ? "hole" : "no hole", cx.error.text);
        if (hole) { /* and the one that it names is one */
            long long a, b;
            ck_assert_int_eq(sscanf(cx.error.text,
                                    "module variants: a hole, none of 3 serves n=%lld a=%lld", &a,
                                    &b),
                             2);
            const int64_t value[2] = {a, b};
            ck_assert(may_be(&t, 0, a) && may_be(&t, 1, b));
            ck_assert(!serves(&t, 0, value) && !serves(&t, 1, value) && !serves(&t, 2, value));
        }
        sx_ctx_reset_error(&cx);
        holes += hole ? 1 : 0;
        covered += hole ? 0 : 1;
    }
    ck_assert_uint_gt(holes, 50);
    ck_assert_uint_gt(covered, 50);
    sx_ctx_fini(&cx);
}
END_TEST

/* A large domain is looked at by a few values, one beyond the limit is refused. */
START_TEST(test_large_domains)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 26);
    sx_gen_module_tables t;
    sx_gen_module_make(&t);
    t.symbols = t.ranges = 2;
    t.guards = 2;
    for (uint32_t s = 0; s < 2; s++) {
        t.symbol[s] = (sx_module_symbol){{9 + s, 1}, s, 1};
        t.range[s] = (sx_module_range){1, SX_EXTENT_MAX, 1};
    }
    t.guard[0] = (sx_module_guard){SX_GUARD_DIVISIBLE, 0, 128, 0};
    t.guard[1] = (sx_module_guard){SX_GUARD_RANGE, 1, 1, SX_EXTENT_MAX};
    t.variant[0].guard_count = 2;
    ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, "serves n=1 a=1 on");
    t.variant[0].guard_first = 1;
    t.variant[0].guard_count = 1;
    ck_sx_ok(&cx, decode_tables(&cx, &t));
    t.guards = 3;
    t.guard[0].low = 65536;
    t.guard[2] = (sx_module_guard){SX_GUARD_DIVISIBLE, 1, 65536, 0};
    ck_sx_fails(&cx, decode_tables(&cx, &t), SX_CORRUPT, "guards to look at for all extents");
    sx_ctx_fini(&cx);
}
END_TEST

/* Every amount of memory is enough, or refused as memory. */
START_TEST(test_out_of_memory)
{
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_buf bytes;
    sx_buf_init(&bytes, 1 << 24);
    gen_rich(&cx, &bytes);
    sx_ctx_fini(&cx);
    uint8_t *copy = aligned_copy(sx_buf_span(&bytes));
    uint32_t failed = 0, done = 0;
    for (size_t limit = 0; limit < 4096; limit += 16) {
        sx_module module;
        sx_ctx_init(&cx, limit);
        sx_code code = sx_module_decode(&cx, (sx_span){copy, bytes.len}, true, &module);
        ck_assert_msg(code == SX_OK || code == SX_NOMEM, "%zu bytes: %s", limit, cx.error.text);
        ck_assert(code == SX_NOMEM || failed > 0);
        failed += code == SX_NOMEM ? 1 : 0;
        done += code == SX_OK ? 1 : 0;
        sx_ctx_fini(&cx);
    }
    ck_assert(failed > 0 && done > 0);
    free(copy);
    sx_buf_fini(&bytes);
}
END_TEST

/* ---- names ---- */

START_TEST(test_names)
{
    ck_assert_str_eq(sx_arch_name(SX_ARCH_X86_64), "x86-64");
    ck_assert_str_eq(sx_level_name(SX_ARCH_X86_64, 4), "x86-64-v4");
    ck_assert_str_eq(sx_level_name(SX_ARCH_NVIDIA, 90), "sm_90");
    ck_assert_str_eq(sx_form_name(SX_FORM_CUBIN), "cubin");
    ck_assert_uint_eq(sx_form_arch(SX_FORM_PTX), SX_ARCH_NVIDIA);
    ck_assert(sx_arch_name(0) == NULL && sx_arch_name(SX_ARCH_END) == NULL);
    ck_assert(sx_level_name(SX_ARCH_NVIDIA, 4) == NULL && sx_form_name(0) == NULL);
    ck_assert_uint_eq(sx_form_arch(99), 0);
    sx_ctx cx;
    sx_ctx_init(&cx, 1 << 24);
    sx_gen_module_tables t;
    sx_gen_module_make_rich(&t);
    sx_module module = sx_gen_module_view(&t);
    sx_buf text;
    sx_buf_init(&text, 1000);
    sx_module_symbol_print(&module, 0, &text);
    ck_assert(sx_span_is(sx_buf_span(&text), "1 to 8, 16 to 64 step 16"));
    sx_buf_clear(&text);
    sx_module_guards_print(&module, 0, &text);
    ck_assert(sx_span_is(sx_buf_span(&text), "n a multiple of 4, on x86-64-v3"));
    sx_buf_fini(&text);
    sx_ctx_fini(&cx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("protocol.module");
    TCase *cases = tcase_create("module");
    tcase_add_test(cases, test_round_trip);
    tcase_add_test(cases, test_every_truncation_is_refused);
    tcase_add_test(cases, test_every_flipped_bit_is_refused);
    tcase_add_loop_test(cases, test_layout_faults_are_refused, 0, SX_COUNT(layout_faults));
    tcase_add_test(cases, test_bytes_behind_the_last_section_are_refused);
    tcase_add_loop_test(cases, test_record_faults_are_refused, 0, SX_COUNT(record_faults));
    tcase_add_loop_test(cases, test_cubin_faults_are_refused, 0, SX_COUNT(cubin_faults));
    tcase_add_test(cases, test_cubin_of_a_processors_kernel);
    tcase_add_test(cases, test_cubin_of_a_part);
    tcase_add_loop_test(cases, test_wrong_sharing_is_refused, 0, SX_COUNT(shared_faults));
    tcase_add_loop_test(cases, test_wrong_choices_are_refused, 0, SX_COUNT(choice_faults));
    tcase_add_test(cases, test_text_outside_the_strings_is_refused);
    tcase_add_test(cases, test_depth_of_loops);
    tcase_add_test(cases, test_holes_are_those_of_brute_force);
    tcase_add_test(cases, test_large_domains);
    tcase_add_test(cases, test_out_of_memory);
    tcase_add_test(cases, test_names);
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
