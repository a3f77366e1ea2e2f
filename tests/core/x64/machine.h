/* machine.h - runs emitted kernels: executable memory, buffers between guard pages, comparison with the interpreter. */
#ifndef SX_TESTS_CORE_X64_MACHINE_H
#define SX_TESTS_CORE_X64_MACHINE_H
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/ir/num.h"
#include "core/loop/loop.h"
#include "core/x64/codegen.h"

#define PAGE 4096U

/* Memory whose byte before the first or behind the last is not mapped. */
typedef struct {
    uint8_t *map;
    size_t map_size;
    uint8_t *ptr;
    size_t size;
} guarded;

SX_UNUSED static guarded guard_make(size_t size, bool at_end)
{
    size_t inner = (size + PAGE - 1) / PAGE * PAGE + PAGE;
    guarded g = {.map_size = inner + 2 * (size_t)PAGE, .size = size};
    g.map = mmap(NULL, g.map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(g.map, MAP_FAILED);
    ck_assert_int_eq(mprotect(g.map + PAGE, inner, PROT_READ | PROT_WRITE), 0);
    g.ptr = at_end ? g.map + PAGE + inner - size : g.map + PAGE;
    return g;
}

SX_UNUSED static void guard_free(guarded *g)
{
    (void)munmap(g->map, g->map_size);
}

/* The blob, mapped read and execute. */
SX_UNUSED static guarded code_make(const sx_buf *blob)
{
    guarded g = {.map_size = (blob->len + PAGE - 1) / PAGE * PAGE, .size = blob->len};
    g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(g.map, MAP_FAILED);
    memcpy(g.map, blob->ptr, blob->len);
    ck_assert_int_eq(mprotect(g.map, g.map_size, PROT_READ | PROT_EXEC), 0);
    g.ptr = g.map;
    return g;
}

typedef void (*machine_entry)(void *const *buffer, const int64_t *index, void *workspace);

/* Calls an entry and tells whether it kept the registers that the ABI wants kept. */
SX_UNUSED static bool call_entry(const uint8_t *code, void *const *buffer, const int64_t *index,
                                 void *workspace)
{
    machine_entry entry;
    memcpy(&entry, &code, sizeof(entry));
    uint64_t wrong = 0;
    __asm__ volatile("sub $128, %%rsp\n" /* past the red zone */
                     "push %%rbx\n push %%rbp\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
                     "mov $0x1111111111, %%rbx\n mov $0x2222222222, %%rbp\n"
                     "mov $0x3333333333, %%r12\n mov $0x4444444444, %%r13\n"
                     "mov $0x5555555555, %%r14\n mov $0x6666666666, %%r15\n"
                     "call *%%rax\n"
                     "xor %%eax, %%eax\n"
                     "mov $0x1111111111, %%rcx\n sub %%rbx, %%rcx\n or %%rcx, %%rax\n"
                     "mov $0x2222222222, %%rcx\n sub %%rbp, %%rcx\n or %%rcx, %%rax\n"
                     "mov $0x3333333333, %%rcx\n sub %%r12, %%rcx\n or %%rcx, %%rax\n"
                     "mov $0x4444444444, %%rcx\n sub %%r13, %%rcx\n or %%rcx, %%rax\n"
                     "mov $0x5555555555, %%rcx\n sub %%r14, %%rcx\n or %%rcx, %%rax\n"
                     "mov $0x6666666666, %%rcx\n sub %%r15, %%rcx\n or %%rcx, %%rax\n"
                     "pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbp\n pop %%rbx\n"
                     "add $128, %%rsp\n"
                     : "=a"(wrong), "+D"(buffer), "+S"(index), "+d"(workspace)
                     : "a"(entry)
                     : "rcx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15");
    return wrong == 0;
}

/* May code of this level be executed (sx_test_can_run)? */
SX_UNUSED static bool machine_has(sx_x64_level level)
{
    return sx_test_can_run(level == SX_X64_AVX2 ? "x86-64-v3" : "x86-64-v4");
}

/* Runs all parts at all grid points in the order of the interpreter; the workspace gets its pattern before
 * each point. */
SX_UNUSED static void machine_run(const sx_kernel *kernel, const sx_x64_kernel *code,
                                  const uint8_t *base, void *const *buffer)
{
    const sx_loop_buffer *last = &kernel->buffer[kernel->buffer_count - 1];
    bool has_work = last->role == SX_BUFFER_WORKSPACE;
    void *workspace = has_work ? buffer[kernel->buffer_count - 1] : NULL;
    void *outside[SX_LOOP_BUFFERS_MAX] = {0};
    memcpy(outside, buffer, (kernel->buffer_count - (has_work ? 1U : 0U)) * sizeof(void *));
    for (uint32_t p = 0; p < kernel->part_count; p++) {
        const int64_t *grid = kernel->part[p].grid;
        for (int64_t i = 0; i < grid[0] * grid[1] * grid[2]; i++) {
            int64_t index[3] = {i / (grid[1] * grid[2]), i / grid[2] % grid[1], i % grid[2]};
            if (has_work) {
                memset(workspace, 0xA7, (size_t)last->size);
            }
            if (!call_entry(base + code->entry[p], outside, index, workspace)) {
                ck_abort_msg("kernel %s part %u: a register of the caller is lost", kernel->name,
                             p);
            }
        }
    }
}

/* The float type that buffers are compared as; others than the result's hold no two NaN that differ. */
SX_UNUSED static sx_dtype machine_dtype = SX_F32;

/* Equal as elements, any NaN equal to any NaN; the index of the first difference or -1. */
SX_UNUSED static int64_t machine_compare(const uint8_t *a, const uint8_t *b, size_t size)
{
    size_t step = sx_dtype_bytes(machine_dtype);
    for (size_t i = 0; i + step <= size; i += step) {
        double x = sx_num_decode(machine_dtype, sx_num_load(machine_dtype, a + i, 0));
        double y = sx_num_decode(machine_dtype, sx_num_load(machine_dtype, b + i, 0));
        if (memcmp(a + i, b + i, step) != 0 && !(isnan(x) && isnan(y))) {
            return (int64_t)i;
        }
    }
    size_t rest = size % step;
    return rest != 0 && memcmp(a + size - rest, b + size - rest, rest) != 0 ? (int64_t)(size - rest)
                                                                            : -1;
}

/* Emits, verifies, runs with guards on both sides and compares with the interpreter. `input` fills buffer k.
 * Returns the code of sx_x64_emit; anything else that fails ends the test with the kernel's text. */
typedef sx_code (*machine_emit)(sx_ctx *cx, const sx_kernel *kernel, sx_buf *blob,
                                sx_x64_kernel *out);
SX_UNUSED static sx_code
machine_check_by(machine_emit emit, sx_ctx *cx, const sx_kernel *kernel, sx_x64_kernel *code,
                 void (*input)(void *self, uint32_t k, uint8_t *bytes, size_t size), void *self)
{
    sx_buf blob;
    sx_buf_init(&blob, (size_t)1 << 24);
    sx_code result = emit(cx, kernel, &blob, code);
    if (result != SX_OK) {
        sx_buf_fini(&blob);
        return result;
    }
    ck_sx_ok(cx, sx_x64_check(cx, sx_buf_span(&blob), code->level, code->entry, code->entry_count));
    guarded text = code_make(&blob);
    for (uint32_t side = 0; side < 2 && machine_has(code->level); side++) {
        guarded ours[SX_LOOP_BUFFERS_MAX];
        uint8_t *theirs[SX_LOOP_BUFFERS_MAX];
        void *pointers[SX_LOOP_BUFFERS_MAX];
        for (uint32_t k = 0; k < kernel->buffer_count; k++) {
            size_t size = (size_t)kernel->buffer[k].size;
            ours[k] = guard_make(size, side == 0);
            theirs[k] = malloc(size + 1);
            input(self, k, theirs[k], size);
            memcpy(ours[k].ptr, theirs[k], size);
            pointers[k] = ours[k].ptr;
        }
        machine_run(kernel, code, text.ptr, pointers);
        ck_sx_ok(cx, sx_kernel_eval(cx, kernel, (void *const *)theirs));
        for (uint32_t k = 0; k < kernel->buffer_count; k++) {
            int64_t at = machine_compare(ours[k].ptr, theirs[k], ours[k].size);
            if (at >= 0) {
                sx_buf dump;
                sx_buf_init(&dump, (size_t)1 << 24);
                (void)sx_kernel_print(cx, kernel, &dump);
                sx_x64_print_code(&dump, sx_buf_span(&blob), code->entry[0], (uint32_t)blob.len);
                (void)fprintf(stderr, "%.*s\n", (int)dump.len, (const char *)dump.ptr);
                ck_abort_msg("kernel %s: buffer %u differs at byte %lld", kernel->name, k,
                             (long long)at);
            }
            guard_free(&ours[k]);
            free(theirs[k]);
        }
    }
    (void)munmap(text.map, text.map_size);
    sx_buf_fini(&blob);
    return SX_OK;
}

SX_UNUSED static sx_code
machine_check(sx_ctx *cx, const sx_kernel *kernel, sx_x64_kernel *code,
              void (*input)(void *self, uint32_t k, uint8_t *bytes, size_t size), void *self)
{
    return machine_check_by(sx_x64_emit, cx, kernel, code, input, self);
}

/* Buffers of their own as input: `self` is a list of them. */
SX_UNUSED static void machine_copy_in(void *self, uint32_t k, uint8_t *bytes, size_t size)
{
    void *const *buffer = self;
    memcpy(bytes, buffer[k], size);
}

/* Runs machine code on copies of the buffers, where there is any, compares it with the interpreter, and leaves what
 * that computes. */
SX_UNUSED static void machine_run_both(sx_ctx *cx, const sx_kernel *kernel, void *const *buffer,
                                       void *self)
{
    sx_x64_kernel code;
    void *copy[SX_LOOP_BUFFERS_MAX];
    (void)self;
    memcpy(copy, buffer, sizeof(void *) * kernel->buffer_count);
    if (sx_kernel_vector_bytes(kernel) <= 64) { /* x86-64 has no wider ones */
        ck_sx_ok(cx, machine_check(cx, kernel, &code, machine_copy_in, copy));
    }
    ck_sx_ok(cx, sx_kernel_eval(cx, kernel, buffer));
}
#endif
