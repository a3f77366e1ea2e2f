/* Every form of ops.def, byte for byte against GNU as; decoder and printer against the encoder; the
 * assembler's labels. */
#include "tests/core/x64/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/x64/form.h"

typedef struct {
    sx_buf code;    /* what the encoder wrote */
    sx_buf text;    /* the same for as */
    uint32_t *at;   /* offset of every case in code */
    uint32_t *line; /* offset of its line in text */
    uint32_t count, capacity;
    sx_x64_decoder decoder;
    uint32_t *row_cases; /* by row: cases whose encoding came from it */
    sx_rng rng;
} suite_data;

/* Decoding gives the operands back; no shorter piece decodes. (No ck_assert in here: it writes to a pipe every
 * time.) */
static bool reads_back(const suite_data *data, const sx_x64_insn *insn)
{
    sx_x64_insn back;
    if (!sx_x64_decode(&data->decoder, (sx_span){insn->byte, insn->len}, &back) ||
        back.form != insn->form || back.len != insn->len) {
        return false;
    }
    for (uint32_t i = 0; i < insn->arg_count; i++) {
        const sx_x64_arg *a = &insn->arg[i];
        const sx_x64_arg *b = &back.arg[i];
        bool same = a->kind == b->kind && a->reg == b->reg && a->mask == b->mask &&
                    a->zero == b->zero && a->disp == b->disp && a->imm == b->imm;
        bool address = a->kind != SX_X64_MEM || (a->index == b->index && a->scale == b->scale &&
                                                 a->broadcast == b->broadcast);
        if (!same || !address) {
            return false;
        }
    }
    for (uint32_t len = 0; len < insn->len; len++) {
        if (sx_x64_decode(&data->decoder, (sx_span){insn->byte, len}, &back)) {
            return false;
        }
    }
    return true;
}

static void add_case(suite_data *data, const sx_x64_insn *wanted)
{
    sx_x64_insn insn = *wanted;
    if (!sx_x64_encode(&insn)) {
        ck_abort_msg("no form of %s fits", sx_x64_op_text(insn.op));
    }
    data->row_cases[insn.form]++;
    if (data->count == data->capacity) {
        data->capacity = data->capacity * 2 + 1024;
        data->at = realloc(data->at, data->capacity * sizeof(*data->at));
        data->line = realloc(data->line, data->capacity * sizeof(*data->line));
    }
    data->at[data->count] = (uint32_t)data->code.len;
    data->line[data->count++] = (uint32_t)data->text.len;
    sx_buf_put(&data->code, insn.byte, insn.len);
    const char *name = sx_x64_op_text(insn.op);
    bool move = strncmp(name, "vmovups", 8) == 0 || strncmp(name, "vmovaps", 8) == 0 ||
                strncmp(name, "vmovupd", 8) == 0;
    if (move && insn.arg[0].kind != SX_X64_MEM && insn.arg[1].kind != SX_X64_MEM) {
        sx_buf_put_text(&data->text, "{load} ");
    } else if (insn.arg_count > 0 && insn.arg[0].kind == SX_X64_LABEL) {
        sx_buf_put_text(&data->text, "{disp32} ");
    }
    sx_x64_print(&data->text, &insn);
    sx_buf_put_text(&data->text, "\n");

    if (!reads_back(data, &insn)) {
        const char *line = (const char *)data->text.ptr + data->line[data->count - 1];
        ck_abort_msg("does not decode to itself: %.*s", (int)strcspn(line, "\n"), line);
    }
}

static uint32_t register_limit(const sx_x64_form *form, sx_x64_kind kind)
{
    bool vector = kind == SX_X64_XMM || kind == SX_X64_YMM || kind == SX_X64_ZMM;
    return kind == SX_X64_K ? 8 : vector && form->encoding == SX_ENC_EVEX ? 32 : 16;
}

/* An ordinary operand for a position; EVEX rows get a register above 15 so that the row itself is meant. */
static sx_x64_arg plain_arg(suite_data *data, const sx_x64_form *form, uint32_t index,
                            uint32_t length)
{
    const sx_x64_spec *spec = sx_x64_form_spec(form, index);
    switch ((sx_x64_place)spec->place) {
    case SX_PLACE_RAX: return sx_x64_r64(SX_RAX);
    case SX_PLACE_BRANCH: {
        sx_x64_arg arg = sx_x64_to(SX_X64_NO_LABEL);
        arg.disp = 1000;
        return arg;
    }
    case SX_PLACE_IMM:
        switch ((sx_x64_imm_kind)spec->imm) {
        case SX_IMM_S32: return sx_x64_imm(100000);
        case SX_IMM_64: return sx_x64_imm(INT64_C(0x123456789ABCDEF));
        case SX_IMM_ONE: return sx_x64_imm(1);
        case SX_IMM_U32: return sx_x64_imm(0xF0000001);
        default: return sx_x64_imm(3);
        }
    default: break;
    }
    if (spec->mem != 0) {
        return sx_x64_mem(SX_RCX, 0);
    }
    sx_x64_kind kind = sx_x64_spec_reg(spec, length);
    return sx_x64_reg(kind, 1 + (uint32_t)sx_rng_below(&data->rng, register_limit(form, kind) - 1));
}

static bool allowed(const sx_x64_form *form, uint32_t length)
{
    return form->lengths == SX_LEN_L0 ? length == 0 : (form->lengths >> length & 1) != 0;
}

static void all_registers(suite_data *data, const sx_x64_form *form, uint32_t length,
                          const sx_x64_insn *plain, uint32_t index)
{
    const sx_x64_spec *spec = sx_x64_form_spec(form, index);
    if (spec->reg == SX_X64_NONE || spec->place == SX_PLACE_RAX) {
        return;
    }
    sx_x64_kind kind = sx_x64_spec_reg(spec, length);
    for (uint32_t number = 0; number < register_limit(form, kind); number++) {
        sx_x64_insn insn = *plain;
        uint8_t mask = insn.arg[index].mask;
        bool zero = insn.arg[index].zero;
        insn.arg[index] = sx_x64_masked(sx_x64_reg(kind, number), mask, zero);
        for (uint32_t i = 0; i < insn.arg_count; i++) { /* others at random, as registers */
            const sx_x64_spec *other = sx_x64_form_spec(form, i);
            if (i != index && other->reg != SX_X64_NONE && other->place != SX_PLACE_RAX) {
                sx_x64_kind k = sx_x64_spec_reg(other, length);
                insn.arg[i] =
                    sx_x64_reg(k, (uint32_t)sx_rng_below(&data->rng, register_limit(form, k)));
                insn.arg[i].mask = i == 0 ? plain->arg[0].mask : 0;
                insn.arg[i].zero = i == 0 && plain->arg[0].zero;
            }
        }
        add_case(data, &insn);
    }
}

static void all_addresses(suite_data *data, const sx_x64_form *form, uint32_t length,
                          const sx_x64_insn *plain, uint32_t index, bool broadcast)
{
    int32_t n = (int32_t)sx_x64_form_disp_scale(form, length, broadcast);
    const int32_t disps[] = {0,
                             1,
                             -1,
                             n,
                             -n,
                             127,
                             128,
                             -128,
                             -129,
                             127 * n,
                             128 * n,
                             -128 * n,
                             -129 * n,
                             127 * n + 1,
                             127 * n - 1,
                             -128 * n + 1,
                             -128 * n - 1,
                             1 << 20,
                             INT32_MAX,
                             INT32_MIN};
    sx_x64_insn insn = *plain;
    sx_x64_arg *mem = &insn.arg[index];
    uint8_t mask = mem->mask;
    bool zero = mem->zero;
    for (uint32_t base = 0; base < 16; base++) {
        for (uint32_t d = 0; d < SX_COUNT(disps); d++) {
            if (d >= 6 && base != 1) {
                continue; /* the special bases rsp rbp r12 r13 take part in the first six */
            }
            *mem = sx_x64_masked(sx_x64_mem(base, disps[d]), mask, zero);
            mem->broadcast = broadcast;
            add_case(data, &insn);
        }
        for (uint32_t scale = 1; scale <= 8; scale *= 2) {
            uint32_t other = (uint32_t)sx_rng_below(&data->rng, 16);
            *mem = sx_x64_masked(sx_x64_mem_index(base, other == SX_RSP ? SX_R12 : other, scale,
                                                  disps[sx_rng_below(&data->rng, SX_COUNT(disps))]),
                                 mask, zero);
            mem->broadcast = broadcast;
            add_case(data, &insn);
        }
    }
    for (uint32_t i = 0; i < 16; i++) {
        *mem = sx_x64_masked(sx_x64_mem_index(SX_RBP, i == SX_RSP ? 3 : i, 4, 0), mask, zero);
        mem->broadcast = broadcast;
        add_case(data, &insn);
    }
    *mem = sx_x64_masked(sx_x64_mem(SX_X64_RIP, -4096), mask, zero);
    mem->broadcast = broadcast;
    add_case(data, &insn);
}

static void all_immediates(suite_data *data, const sx_x64_form *form, const sx_x64_insn *plain,
                           uint32_t index)
{
    static const int64_t values[] = {0,         1,          -1,        127,       128,
                                     -128,      -129,       255,       31,        INT32_MAX,
                                     INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, 0x80000000};
    const sx_x64_spec *spec = sx_x64_form_spec(form, index);
    for (uint32_t i = 0; i < SX_COUNT(values); i++) {
        sx_x64_insn insn = *plain;
        if (spec->place == SX_PLACE_IMM) {
            insn.arg[index].imm = values[i];
        } else if (spec->place == SX_PLACE_BRANCH && values[i] == (int32_t)values[i] &&
                   values[i] < INT32_MAX - 16) {
            insn.arg[index].disp = (int32_t)values[i];
        } else {
            continue;
        }
        uint32_t length;
        if (sx_x64_form_match(form, &insn, &length)) {
            add_case(data, &insn);
        }
    }
}

static void cases_of(suite_data *data, const sx_x64_form *form, uint32_t length)
{
    sx_x64_insn plain = {.op = (sx_x64_op)form->op,
                         .arg_count = (uint8_t)sx_x64_form_arg_count(form)};
    for (uint32_t i = 0; i < plain.arg_count; i++) {
        plain.arg[i] = plain_arg(data, form, i, length);
    }
    add_case(data, &plain);
    uint32_t masks = form->flags & SX_FLAG_MASK ? 2 + ((form->flags & SX_FLAG_ZERO) != 0) : 1;
    for (uint32_t m = 0; m < masks; m++) {
        if (m > 0) {
            plain.arg[0].mask = (uint8_t)(1 + sx_rng_below(&data->rng, 7));
            plain.arg[0].zero = m == 2;
        }
        for (uint32_t i = 0; i < plain.arg_count; i++) {
            all_registers(data, form, length, &plain, i);
            if (m > 0) {
                continue;
            }
            all_immediates(data, form, &plain, i);
            if (sx_x64_form_spec(form, i)->mem != 0) {
                all_addresses(data, form, length, &plain, i, false);
                if (sx_x64_form_broadcast(form) != 0) {
                    all_addresses(data, form, length, &plain, i, true);
                }
            }
        }
    }
}

static void run_as(const suite_data *data, sx_buf *result)
{
    char folder[256];
    sx_test_mkdtemp(folder);
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/a.s", folder);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    (void)fputs(".intel_syntax noprefix\n", file);
    ck_assert_uint_eq(fwrite(data->text.ptr, 1, data->text.len, file), data->text.len);
    ck_assert_int_eq(fclose(file), 0);
    char command[2048];
    (void)snprintf(command, sizeof(command),
                   "as --64 -o %s/a.o %s/a.s && objcopy -O binary -j .text %s/a.o %s/a.bin", folder,
                   folder, folder, folder);
    ck_assert_int_eq(system(command), 0);
    (void)snprintf(path, sizeof(path), "%s/a.bin", folder);
    sx_test_read_file(path, result);
    sx_test_rmtree(folder);
}

START_TEST(bytes_are_those_of_gnu_as)
{
    suite_data data = {.rng = {sx_test_seed()}};
    sx_buf_init(&data.code, (size_t)1 << 28);
    sx_buf_init(&data.text, (size_t)1 << 28);
    sx_x64_decoder_init(&data.decoder);
    data.row_cases = calloc(sx_x64_form_count, sizeof(*data.row_cases));
    for (uint32_t row = 0; row < sx_x64_form_count; row++) {
        for (uint32_t length = 0; length < 3; length++) {
            if (allowed(&sx_x64_forms[row], length)) {
                cases_of(&data, &sx_x64_forms[row], length);
            }
        }
    }
    ck_assert_int_eq(data.code.code, SX_OK);
    ck_assert_int_eq(data.text.code, SX_OK);
    for (uint32_t row = 0; row < sx_x64_form_count; row++) {
        ck_assert_msg(data.row_cases[row] > 0, "row %u (%s) is never chosen", row,
                      sx_x64_op_text((sx_x64_op)sx_x64_forms[row].op));
    }
    sx_buf theirs;
    sx_buf_init(&theirs, (size_t)1 << 28);
    run_as(&data, &theirs);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < data.count; i++) {
        uint32_t end = i + 1 < data.count ? data.at[i + 1] : (uint32_t)data.code.len;
        if (end > theirs.len ||
            memcmp(theirs.ptr + data.at[i], data.code.ptr + data.at[i], end - data.at[i]) != 0) {
            const char *line = (const char *)data.text.ptr + data.line[i];
            (void)fprintf(stderr, "differs: %.*s\n", (int)strcspn(line, "\n"), line);
            for (uint32_t k = data.at[i]; k < data.at[i] + 12; k++) {
                (void)fprintf(stderr, "%02x/%02x ", k < data.code.len ? data.code.ptr[k] : 0U,
                              k < theirs.len ? theirs.ptr[k] : 0U);
            }
            (void)fprintf(stderr, "(ours/as)\n");
            wrong++;
            break; /* what follows is shifted */
        }
    }
    printf("%u cases, %zu bytes\n", data.count, data.code.len);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_eq(theirs.len, data.code.len);
    ck_assert_uint_gt(data.count, 50000);
    free(data.at);
    free(data.line);
    free(data.row_cases);
    sx_buf_fini(&theirs);
    sx_buf_fini(&data.code);
    sx_buf_fini(&data.text);
}
END_TEST

START_TEST(misfits_are_refused)
{
    struct {
        sx_x64_op op;
        sx_x64_arg arg[3];
        uint8_t count;
    } bad[] = {
        {SX_X64_MOV, {sx_x64_r64(1), sx_x64_r32(2)}, 2},
        {SX_X64_MOV, {sx_x64_r64(16), sx_x64_r64(2)}, 2},
        {SX_X64_MOV, {sx_x64_r64(1), sx_x64_mem_index(1, SX_RSP, 1, 0)}, 2},
        {SX_X64_MOV, {sx_x64_r64(1), sx_x64_mem_index(1, 2, 3, 0)}, 2},
        {SX_X64_ADD, {sx_x64_r64(1), sx_x64_imm(INT64_C(1) << 31)}, 2},
        {SX_X64_VADDPS,
         {sx_x64_reg(SX_X64_XMM, 1), sx_x64_reg(SX_X64_YMM, 2), sx_x64_reg(SX_X64_YMM, 3)},
         3},
        {SX_X64_VADDPS,
         {sx_x64_reg(SX_X64_ZMM, 1), sx_x64_reg(SX_X64_ZMM, 2), sx_x64_reg(SX_X64_ZMM, 32)},
         3},
        {SX_X64_VMASKMOVPS,
         {sx_x64_reg(SX_X64_YMM, 1), sx_x64_reg(SX_X64_YMM, 20), sx_x64_mem(0, 0)},
         3},
        {SX_X64_VMOVUPS, {sx_x64_masked(sx_x64_mem(0, 0), 1, true), sx_x64_reg(SX_X64_ZMM, 1)}, 2},
        {SX_X64_VMOVUPS, {sx_x64_reg(SX_X64_ZMM, 1), sx_x64_broadcast(sx_x64_mem(0, 0))}, 2},
        {SX_X64_VMOVUPS, {sx_x64_masked(sx_x64_reg(SX_X64_ZMM, 1), 8, false), sx_x64_mem(0, 0)}, 2},
        {SX_X64_VMOVUPS, {sx_x64_reg(SX_X64_ZMM, 1)}, 1},
    };
    for (uint32_t i = 0; i < SX_COUNT(bad); i++) {
        sx_x64_insn insn = {.op = bad[i].op, .arg_count = bad[i].count};
        for (uint32_t k = 0; k < bad[i].count; k++) {
            insn.arg[k] = bad[i].arg[k];
        }
        ck_assert_msg(!sx_x64_encode(&insn), "case %u was encoded", i);
    }
}
END_TEST

START_TEST(labels_constants_alignment)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf out;
    sx_buf_init(&out, 65536);
    sx_x64_asm as;
    sx_x64_asm_init(&as, &cx, SX_X64_AVX512, &out);
    uint32_t back = sx_x64_label_make(&as);
    uint32_t forward = sx_x64_label_make(&as);
    float eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t c = sx_x64_const_put(&as, eight, sizeof(eight), 32);
    ck_assert_uint_eq(sx_x64_const_put(&as, eight, sizeof(eight), 64), c);
    sx_x64_label_put(&as, back);
    SX_X64_PUT(&as, JE, sx_x64_to(forward));
    SX_X64_PUT(&as, VCMPPS, sx_x64_k(1), sx_x64_reg(SX_X64_YMM, 1), sx_x64_at(c), sx_x64_imm(1));
    uint32_t after_load = sx_x64_offset(&as);
    SX_X64_PUT(&as, JMP, sx_x64_to(back));
    uint32_t after_jump = sx_x64_offset(&as);
    sx_x64_label_put(&as, forward);
    SX_X64_PUT0(&as, RET);
    for (uint32_t gap = 0; gap < 64; gap++) { /* every gap is filled with listed nops */
        SX_X64_PUT0(&as, NOP);
        sx_x64_align(&as, 64);
        ck_assert_uint_eq(sx_x64_offset(&as) % 64, 0);
        for (uint32_t i = 0; i < gap; i++) {
            SX_X64_PUT0(&as, NOP);
        }
    }
    uint32_t end = sx_x64_offset(&as);
    ck_sx_ok(&cx, sx_x64_finish(&as));
    const uint8_t *code = out.ptr;
    int32_t distance;
    memcpy(&distance, code + 2, 4);
    ck_assert_int_eq(distance, (int32_t)after_jump - 6);
    memcpy(&distance, code + after_jump - 4, 4);
    ck_assert_int_eq(distance, -(int32_t)after_jump);
    memcpy(&distance, code + after_load - 5, 4); /* a trailing immediate counts */
    uint32_t place = (uint32_t)((int32_t)after_load + distance);
    ck_assert_uint_eq(place % 64, 0);
    ck_assert_uint_ge(place, end);
    ck_assert_mem_eq(code + place, eight, sizeof(eight));
    sx_buf text;
    sx_buf_init(&text, 1 << 20);
    sx_x64_print_code(&text, sx_buf_span(&out), 0, end);
    const char *last = strrchr((const char *)text.ptr, ':');
    ck_assert_ptr_nonnull(last);
    sx_x64_insn insn;
    sx_x64_decoder decoder;
    sx_x64_decoder_init(&decoder);
    uint32_t at = 0;
    while (at < end) {
        ck_assert(sx_x64_decode(&decoder, (sx_span){code + at, end - at}, &insn));
        at += insn.len;
    }
    ck_assert_uint_eq(at, end);
    sx_buf_fini(&text);
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}
END_TEST

START_TEST(assembler_reports_what_it_cannot_do)
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf out;
    sx_buf_init(&out, 4096);
    sx_x64_asm as;
    sx_x64_asm_init(&as, &cx, SX_X64_AVX2, &out);
    SX_X64_PUT(&as, VADDPS, sx_x64_reg(SX_X64_ZMM, 1), sx_x64_reg(SX_X64_ZMM, 1),
               sx_x64_reg(SX_X64_ZMM, 1));
    ck_sx_fails(&cx, sx_x64_finish(&as), SX_UNIMPLEMENTED, "needs avx-512");
    sx_x64_asm_init(&as, &cx, SX_X64_AVX2, &out);
    SX_X64_PUT(&as, MOV, sx_x64_r64(1), sx_x64_k(1));
    ck_sx_fails(&cx, sx_x64_finish(&as), SX_INTERNAL, "no form of mov");
    sx_x64_asm_init(&as, &cx, SX_X64_AVX2, &out);
    SX_X64_PUT(&as, JMP, sx_x64_to(sx_x64_label_make(&as)));
    ck_sx_fails(&cx, sx_x64_finish(&as), SX_INTERNAL, "label 0 is used but not placed");
    sx_x64_asm_init(&as, &cx, SX_X64_AVX2, &out);
    for (uint32_t i = 0; i < 5000; i++) {
        SX_X64_PUT0(&as, RET);
    }
    ck_sx_fails(&cx, sx_x64_finish(&as), SX_LIMIT, "machine code: more than 4096 bytes");
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}
END_TEST

/* What the column `nan` of the table says is what the processor does. */
static void run_two(sx_x64_op op, sx_x64_level level, const uint32_t a[4], const uint32_t b[4],
                    uint32_t result[4])
{
    sx_ctx cx;
    sx_ctx_init(&cx, (size_t)1 << 20);
    sx_buf out;
    sx_buf_init(&out, PAGE);
    sx_x64_asm as;
    sx_x64_asm_init(&as, &cx, level, &out);
    uint32_t high = level == SX_X64_AVX512 ? 16 : 0; /* registers that only EVEX reaches */
    sx_x64_arg x[3];
    for (uint32_t i = 0; i < 3; i++) {
        x[i] = sx_x64_reg(SX_X64_XMM, high + i);
    }
    SX_X64_PUT(&as, VMOVUPS, x[1], sx_x64_mem(SX_RDI, 0));
    SX_X64_PUT(&as, VMOVUPS, x[2], sx_x64_mem(SX_RSI, 0));
    sx_x64_put(&as, op, (const sx_x64_arg[]){x[0], x[1], x[2]}, 3);
    SX_X64_PUT(&as, VMOVUPS, sx_x64_mem(SX_RDX, 0), x[0]);
    SX_X64_PUT0(&as, RET);
    ck_sx_ok(&cx, sx_x64_finish(&as));
    guarded text = code_make(&out);
    void (*entry)(const uint32_t *, const uint32_t *, uint32_t *);
    memcpy(&entry, &text.ptr, sizeof(entry));
    entry(a, b, result);
    (void)munmap(text.map, text.map_size);
    sx_buf_fini(&out);
    sx_ctx_fini(&cx);
}

START_TEST(nan_column_is_true)
{
    static const uint32_t a[4] = {0x7FC00001, 0x7FC00001, 0x3F800000, 0x00000000};
    static const uint32_t b[4] = {0x7FC00002, 0x3F800000, 0x7FC00002, 0x80000000};
    uint32_t checked = 0;
    for (uint32_t row = 0; row < sx_x64_form_count; row++) {
        const sx_x64_form *form = &sx_x64_forms[row];
        sx_x64_level level = form->encoding == SX_ENC_EVEX ? SX_X64_AVX512 : SX_X64_AVX2;
        bool packed = form->map == SX_MAP_M0F && form->pp == SX_PP_P0;
        if ((form->nan != SX_NAN_FIRST && form->nan != SX_NAN_SECOND) || !packed ||
            sx_x64_form_spec(form, 1)->place != SX_PLACE_VVVV || !machine_has(level)) {
            continue;
        }
        uint32_t result[4];
        run_two((sx_x64_op)form->op, level, a, b, result);
        const char *name = sx_x64_op_text((sx_x64_op)form->op);
        if (form->nan == SX_NAN_FIRST) {
            ck_assert_msg(result[0] == a[0] && result[1] == a[1] && result[2] == b[2], "%s", name);
        } else {
            ck_assert_msg(memcmp(result, b, sizeof(b)) == 0, "%s", name);
        }
        checked++;
    }
    ck_assert(checked >= 6 || !machine_has(SX_X64_AVX2));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.encode");
    TCase *tcase = tcase_create("encode");
    tcase_add_test(tcase, bytes_are_those_of_gnu_as);
    tcase_add_test(tcase, misfits_are_refused);
    tcase_add_test(tcase, labels_constants_alignment);
    tcase_add_test(tcase, nan_column_is_true);
    tcase_add_test(tcase, assembler_reports_what_it_cannot_do);
    tcase_set_timeout(tcase, 400);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
