/* alu_insn.h - one instruction of PTX, read from its text and run on chosen operands: for tests of core/simt/alu.h. */
#ifndef SX_TESTS_CORE_SIMT_ALU_INSN_H
#define SX_TESTS_CORE_SIMT_ALU_INSN_H
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/simt/alu.h"
#include "tests/lib/test.h"

/* Prepares an instruction of registers %p %h %r %d, numbered 0 to 15. */
static inline sx_ptx_alu alu_insn(sx_ctx *cx, const char *insn)
{
    char text[1024];
    sx_ptx_module *module;
    sx_ptx_alu alu;
    (void)snprintf(text, sizeof(text),
                   ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
                   ".reg .pred %%p<16>; .reg .b16 %%h<16>; .reg .b32 %%r<16>; .reg .b64 %%d<16>;\n"
                   "%s;\nexit;\n}\n",
                   insn);
    ck_sx_ok(cx, sx_ptx_parse(cx, sx_span_of(text), &module));
    ck_assert_msg(sx_ptx_alu_of(&module->kernel[0], &module->kernel[0].insn[0], &alu), "%s", insn);
    return alu;
}

#define ALU_WORDS_MAX 12
/* Words of results and operands. */
typedef struct {
    sx_ptx_word result[ALU_WORDS_MAX], operand[ALU_WORDS_MAX];
} alu_words;

static inline void alu_run(const sx_ptx_alu *alu, alu_words *w, uint32_t active)
{
    sx_ptx_word *result[ALU_WORDS_MAX];
    const sx_ptx_word *operand[ALU_WORDS_MAX];
    for (uint32_t k = 0; k < ALU_WORDS_MAX; k++) {
        result[k] = &w->result[k];
        operand[k] = k < alu->operand_count ? &w->operand[k] : NULL;
    }
    alu->run(alu, result, operand, active);
}

/* The same operands in all lanes, of which the outermost are active; the first result. */
static inline uint64_t alu_one(const sx_ptx_alu *alu, const uint64_t *operand)
{
    alu_words w;
    memset(&w, 0, sizeof(w));
    for (uint32_t k = 0; k < alu->operand_count; k++) {
        for (uint32_t i = 0; i < SX_PTX_LANES; i++) {
            w.operand[k].lane[i] = operand[k];
        }
    }
    alu_run(alu, &w, 0x80000001);
    ck_assert_uint_eq(w.result[0].lane[31], w.result[0].lane[0]);
    return w.result[0].lane[0];
}
#endif
