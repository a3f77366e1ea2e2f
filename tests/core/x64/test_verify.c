/* The verifier accepts what the assembler makes and refuses seeded faults; random bytes never crash it. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/x64/form.h"

static sx_ctx cx;
static sx_buf blob;
static sx_x64_asm as;

static void setup(void)
{
    sx_ctx_init(&cx, (size_t)1 << 26);
    sx_buf_init(&blob, 1 << 20);
    sx_x64_asm_init(&as, &cx, SX_X64_AVX512, &blob);
}

static void teardown(void)
{
    sx_buf_fini(&blob);
    sx_ctx_fini(&cx);
}

static sx_code check(sx_x64_level level)
{
    uint32_t entry = 0;
    return sx_x64_check(&cx, sx_buf_span(&blob), level, &entry, 1);
}

/* A small kernel: frame, loop, constant, store, both vector widths. */
static void kernel(void)
{
    float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
    uint32_t c = sx_x64_const_put(&as, ones, sizeof(ones), 64);
    uint32_t head = sx_x64_label_make(&as);
    SX_X64_PUT(&as, PUSH, sx_x64_r64(SX_RBX));
    SX_X64_PUT(&as, SUB, sx_x64_r64(SX_RSP), sx_x64_imm(32));
    SX_X64_PUT(&as, MOV, sx_x64_mem(SX_RSP, 24), sx_x64_r64(SX_RDI));
    SX_X64_PUT(&as, MOV, sx_x64_r64(SX_RBX), sx_x64_imm(7));
    SX_X64_PUT(&as, VMOVUPS, sx_x64_reg(SX_X64_ZMM, 0), sx_x64_at(c));
    sx_x64_align(&as, 16);
    sx_x64_label_put(&as, head);
    SX_X64_PUT(&as, VADDPS, sx_x64_reg(SX_X64_ZMM, 20), sx_x64_reg(SX_X64_ZMM, 0),
               sx_x64_mem(SX_RDI, 64));
    SX_X64_PUT(&as, VMOVUPS, sx_x64_mem(SX_RSI, 0), sx_x64_reg(SX_X64_ZMM, 20));
    SX_X64_PUT(&as, DEC, sx_x64_r64(SX_RBX));
    SX_X64_PUT(&as, JNE, sx_x64_to(head));
    SX_X64_PUT0(&as, VZEROUPPER);
    SX_X64_PUT(&as, ADD, sx_x64_r64(SX_RSP), sx_x64_imm(32));
    SX_X64_PUT(&as, POP, sx_x64_r64(SX_RBX));
    SX_X64_PUT0(&as, RET);
    ck_sx_ok(&cx, sx_x64_finish(&as));
}

START_TEST(accepts_what_the_assembler_makes)
{
    kernel();
    ck_sx_ok(&cx, check(SX_X64_AVX512));
    ck_sx_fails(&cx, check(SX_X64_AVX2), SX_INPUT, "avx-512 instruction in code for avx2");
}
END_TEST

/* The mask registers have VEX encodings but came with AVX-512. */
START_TEST(mask_registers_need_avx512)
{
    blob.len = 0;
    sx_x64_asm_init(&as, &cx, SX_X64_AVX512, &blob);
    SX_X64_PUT(&as, KMOVW, sx_x64_k(1), sx_x64_r32(SX_RCX));
    SX_X64_PUT0(&as, RET);
    ck_sx_ok(&cx, sx_x64_finish(&as));
    ck_sx_ok(&cx, check(SX_X64_AVX512));
    ck_sx_fails(&cx, check(SX_X64_AVX2), SX_INPUT, "avx-512 instruction in code for avx2");
}
END_TEST

START_TEST(refuses_every_truncation)
{
    kernel();
    size_t full = blob.len;
    uint32_t refused = 0;
    for (blob.len = 0; blob.len < full; blob.len++) {
        refused += check(SX_X64_AVX512) == SX_INPUT;
        sx_ctx_reset_error(&cx);
    }
    ck_assert_uint_eq(refused, full);
}
END_TEST

static const struct {
    const char *bytes;
    uint32_t len;
    const char *why;
} faults[] = {
    {"\x90", 1, "control leaves the code"},                               /* ret missing */
    {"\x0f\x05\xc3", 3, "at offset 0: no listed instruction"},            /* syscall */
    {"\xe8\x00\x00\x00\x00\xc3", 6, "no listed instruction"},             /* call */
    {"\xff\xe0\xc3", 3, "no listed instruction"},                         /* jmp rax */
    {"\xff\xd0\xc3", 3, "no listed instruction"},                         /* call rax */
    {"\xff\x20\xc3", 3, "no listed instruction"},                         /* jmp [rax] */
    {"\xeb\x00\xc3", 3, "no listed instruction"},                         /* short jump */
    {"\xcd\x80\xc3", 3, "no listed instruction"},                         /* int 0x80 */
    {"\xcc\xc3", 2, "no listed instruction"},                             /* int3 */
    {"\x0f\x0b\xc3", 3, "no listed instruction"},                         /* ud2 */
    {"\xc2\x08\x00", 3, "no listed instruction"},                         /* ret 8 */
    {"\x0f\xa2\xc3", 3, "no listed instruction"},                         /* cpuid */
    {"\x65\x48\x8b\x00\xc3", 5, "no listed instruction"},                 /* mov rax, gs:[rax] */
    {"\x67\x48\x8b\x00\xc3", 5, "no listed instruction"},                 /* 32-bit address */
    {"\x40\x90\xc3", 3, "no listed instruction"},                         /* rex without meaning */
    {"\x48\x8b\x80\x00\x00\x00\x00\xc3", 8, "no listed instruction"},     /* disp32 of 0 */
    {"\x48\x8b\x04\x25\x00\x00\x00\x00\xc3", 9, "no listed instruction"}, /* absolute address */
    {"\xc4\xe1\x74\x58\xc2\xc3", 6, "no listed instruction"}, /* long VEX for a short one */
    {"\xe9\x01\x00\x00\x00\x48\x31\xc0\xc3", 9, ""},          /* jump past a prefix: legal */
    {"\x48\x31\xc0\xe9\xf9\xff\xff\xff", 8, "jump into the middle"},
    {"\xe9\x64\x00\x00\x00\xc3", 6, "control leaves the code"},
    {"\xe9\xf0\xff\xff\xff\xc3", 6, "control leaves the code"},
    {"\x50\xc3", 2, "ret with a stack that is not at its entry depth"}, /* push rax; ret */
    {"\x58\xc3", 2, "stack leaves the frame"},                          /* pop rax; ret */
    {"\x5c\xc3", 2, "rsp as an operand"},                               /* pop rsp */
    {"\x48\x89\xc4\xc3", 4, "rsp as an operand"},                       /* mov rsp, rax */
    {"\x48\x8d\x60\x08\xc3", 5, "rsp as an operand"},                   /* lea rsp, [rax+8] */
    {"\x48\x89\x04\x24\xc3", 5, "access off rsp outside the frame"},    /* mov [rsp], rax */
    {"\x48\x89\x44\x24\xf8\xc3", 6, "access off rsp outside the frame"},
    {"\x48\x8d\x44\x24\x08\xc3", 6, "address of the stack"},        /* lea rax, [rsp+8] */
    {"\x48\x89\x05\xf9\xff\xff\xff\xc3", 8, "store into the code"}, /* mov [rip-7], rax */
    {"\x48\x8b\x05\x01\x00\x00\x00\xc3", 8, "constant outside the blob"},
    {"\x74\x01\x50\xc3", 4, "no listed instruction"}, /* short jcc */
    {"\x0f\x84\x01\x00\x00\x00\x50\xc3", 8, ""},      /* depth differs at the ret */
};

START_TEST(refuses_seeded_faults)
{
    sx_buf_put(&blob, faults[_i].bytes, faults[_i].len);
    if (faults[_i].bytes[0] == '\xe9' && faults[_i].why[0] == '\0') {
        ck_sx_ok(&cx, check(SX_X64_AVX512));
        return;
    }
    const char *why = faults[_i].why[0] != '\0' ? faults[_i].why : "stack";
    ck_sx_fails(&cx, check(SX_X64_AVX512), SX_INPUT, why);
}
END_TEST

START_TEST(entries_are_checked)
{
    kernel();
    uint32_t entries[3] = {0, 1, (uint32_t)blob.len};
    ck_sx_ok(&cx, sx_x64_check(&cx, sx_buf_span(&blob), SX_X64_AVX512, entries, 1));
    ck_sx_fails(&cx, sx_x64_check(&cx, sx_buf_span(&blob), SX_X64_AVX512, entries + 2, 1), SX_INPUT,
                "control leaves the code");
    entries[1] = 2; /* inside sub rsp */
    ck_sx_fails(&cx, sx_x64_check(&cx, sx_buf_span(&blob), SX_X64_AVX512, entries, 2), SX_INPUT,
                "offset 2");
}
END_TEST

/* Random bytes, random instructions, and accepted code with a byte changed: an answer every time. */
START_TEST(random_bytes)
{
    sx_rng rng = {sx_test_seed()};
    kernel();
    uint8_t good[1024];
    size_t good_len = blob.len;
    ck_assert_uint_lt(good_len, sizeof(good));
    memcpy(good, blob.ptr, good_len);
    uint32_t accepted = 0;
    uint32_t changed = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        sx_buf_clear(&blob);
        if (round % 2 == 0) {
            sx_buf_put(&blob, good, good_len);
            uint64_t at = sx_rng_below(&rng, good_len);
            blob.ptr[at] = (uint8_t)(blob.ptr[at] ^ (1U << sx_rng_below(&rng, 8)));
        } else {
            static const uint8_t leads[8] = {0x48, 0xC5, 0xC4, 0x62, 0x0F, 0xE9, 0xC3, 0x41};
            uint64_t len = 1 + sx_rng_below(&rng, 64);
            for (uint64_t i = 0; i < len; i++) {
                uint64_t draw = sx_rng_next(&rng);
                sx_buf_put_u8(&blob, draw >> 60 < 4 ? leads[draw & 7] : (uint8_t)draw);
            }
        }
        uint8_t *exact = malloc(blob.len); /* so that a sanitizer sees the end */
        memcpy(exact, blob.ptr, blob.len);
        uint32_t entry = 0;
        sx_ctx one;
        sx_ctx_init(&one, 1 << 20);
        sx_code code = sx_x64_check(&one, (sx_span){exact, blob.len}, SX_X64_AVX512, &entry, 1);
        accepted += code == SX_OK;
        changed += round % 2 == 0 && code == SX_INPUT;
        if (code != SX_OK && code != SX_INPUT) {
            ck_abort_msg("round %u: %s", round, one.error.text);
        }
        sx_ctx_fini(&one);
        free(exact);
    }
    printf("accepted %u, changed and refused %u\n", accepted, changed);
    ck_assert_uint_gt(changed, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("x64.verify");
    TCase *tcase = tcase_create("verify");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 400);
    tcase_add_test(tcase, accepts_what_the_assembler_makes);
    tcase_add_test(tcase, mask_registers_need_avx512);
    tcase_add_test(tcase, refuses_every_truncation);
    tcase_add_loop_test(tcase, refuses_seeded_faults, 0, (int)SX_COUNT(faults));
    tcase_add_test(tcase, entries_are_checked);
    tcase_add_test(tcase, random_bytes);
    suite_add_tcase(suite, tcase);
    return sx_test_main(suite);
}
