/* The same input gives the same bytes, whichever compiler built the lowering: every elementwise operation on every
 * element type as a program of the loop IR, as machine code and as PTX, held as hashes. C leaves the order in which
 * arguments are evaluated to the compiler; tests/tools/argument_order.py finds such places in the sources, and this
 * test is wrong in one of the two builds of the continuous integration where one slips through. Who changes what a
 * lowering emits puts the hashes that a failure prints into the table. */
#include "tests/core/loop/nodes.h"

#include "core/base/hash.h"
#include "core/nvidia/loop.h"
#include "core/ptx/ptx.h"
#include "core/x64/codegen.h"

enum { LOOP, MACHINE, PTX, FORMS };

static const struct {
    sx_dtype dtype;
    uint64_t hash[FORMS];
} rows[] = {
    {SX_F64, {0xfdeef89fd4d3b815, 0xfffd19d8b8abe79c, 0xe0231c5c24d22c4d}},
    {SX_F32, {0xf12a793806464dd7, 0x2602d86aaaf22425, 0x3f2c8b94d4ba6701}},
    {SX_BF16, {0xe56add99138e6c9a, 0xe9f2089608304291, 0x28814689514ce3f2}},
    {SX_F16, {0x4f7d24fd250e97df, 0xd6d613460c99ae8f, 0x85b9d20e53555fe5}},
    {SX_F8E4M3, {0x9f54ab292912c1f3, 0xe3d937419c64689d, 0xf20cd2f93fb69b3b}},
    {SX_F8E5M2, {0x5eb1530d97182f6e, 0xdc8436fbc2a7fd58, 0xeea58b1e5c90785d}},
    {SX_I64, {0x17f0d219be85511a, 0x1e144c7e170a7040, 0x58473b6444b6399a}},
    {SX_I32, {0x763579e4797ca636, 0xe28a9b040f8ba404, 0xc66285b53eaa6394}},
    {SX_I16, {0x7a83f3975b5afc05, 0xb019f7693542b84c, 0x6b0c1f96c125e512}},
    {SX_I8, {0x24f8a6c193d798d8, 0xfafac0b573e6366a, 0x1e140cfa82f45547}},
    {SX_U8, {0x21b91143511e3368, 0xa01c3edd82244e47, 0xf5c9db8b1536357d}},
    {SX_BOOL, {0xa73e841db23acdaf, 0x28a9e499507fe493, 0xb16d9e132be799df}},
};

static void add_text(uint64_t *hash, const sx_buf *text)
{
    *hash = sx_hash64(sx_buf_span(text), *hash);
}

/* The three forms of the node's kernel into the hashes. */
static void add_node(sx_ctx *cx, const node *n, uint64_t hash[FORMS])
{
    for (uint32_t lanes = 16; lanes <= 32; lanes *= 2) {
        const test_tiles tiles = {.lanes = lanes};
        sx_kernel *kernel;
        sx_buf out;
        ck_sx_ok(cx, lower_node(cx, "node", n, &tiles, &kernel));
        sx_buf_init(&out, (size_t)1 << 24);
        if (lanes == 16) {
            sx_x64_kernel record;
            ck_sx_ok(cx, sx_kernel_print(cx, kernel, &out));
            add_text(&hash[LOOP], &out);
            out.len = 0;
            ck_sx_ok(cx, sx_x64_emit_spilling(cx, kernel, &out, &record));
            add_text(&hash[MACHINE], &out);
        } else {
            sx_ptx_module *module;
            ck_sx_ok(cx, sx_ptx_module_make(cx, 80, 0, &module));
            for (uint32_t p = 0; p < kernel->part_count; p++) {
                ck_sx_ok(cx, sx_nvidia_of_loop(cx, kernel, p, module));
            }
            sx_ptx_print(module, &out);
            add_text(&hash[PTX], &out);
        }
        sx_buf_fini(&out);
    }
}

/* One operation on operands of the type into the hashes, if the type has it. */
static void add_op(sx_op op, sx_dtype dtype, uint32_t how, uint64_t hash[FORMS])
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_type x[3] = {TYPE(dtype, 3, 70), TYPE(dtype, 3, 70), TYPE(dtype, 3, 70)};
    sx_attr attr = {.present = sx_op_info_of(op)->attrs};
    sx_type result;
    if (op == SX_OP_SELECT) {
        x[0] = TYPE(SX_BOOL, 3, 70);
    }
    attr.direction = (sx_direction)how;
    attr.type = TYPE(rows[how].dtype, 3, 70);
    uint32_t count = sx_op_info_of(op)->input_max;
    if (sx_infer_type(&cx, NULL, 0, op, &attr, x, count, &result) == SX_OK) {
        node n = lift(&cx, op, &attr, x, count);
        add_node(&cx, &n, hash);
    }
    sx_ctx_fini(&cx);
}

START_TEST(test_elementwise)
{
    sx_dtype dtype = rows[_i].dtype;
    uint64_t hash[FORMS] = {0};
    for (uint32_t op = 0; op < SX_OP_COUNT; op++) {
        switch ((int)sx_op_info_of((sx_op)op)->op_class) {
        case SX_OPCLASS_UNARY:
        case SX_OPCLASS_BINARY:
        case SX_OPCLASS_SELECT: add_op((sx_op)op, dtype, 0, hash); break;
        case SX_OPCLASS_COMPARE:
            for (uint32_t d = 0; d < SX_DIRECTION_COUNT; d++) {
                add_op((sx_op)op, dtype, d, hash);
            }
            break;
        case SX_OPCLASS_CONVERT:
            for (uint32_t t = 0; t < SX_COUNT(rows); t++) {
                add_op((sx_op)op, dtype, t, hash);
            }
            break;
        default: break;
        }
    }
    const uint64_t *held = rows[_i].hash;
    ck_assert_msg(memcmp(held, hash, sizeof(hash)) == 0,
                  "%s: {0x%016llx, 0x%016llx, 0x%016llx} in place of {0x%016llx, 0x%016llx, "
                  "0x%016llx} (loop IR, x86-64, PTX)",
                  sx_dtype_name(dtype), (unsigned long long)hash[LOOP],
                  (unsigned long long)hash[MACHINE], (unsigned long long)hash[PTX],
                  (unsigned long long)held[LOOP], (unsigned long long)held[MACHINE],
                  (unsigned long long)held[PTX]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nvidia.same_bytes");
    TCase *cases = tcase_create("same bytes");
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, test_elementwise, 0, (int)SX_COUNT(rows));
    suite_add_tcase(suite, cases);
    return sx_test_main(suite);
}
