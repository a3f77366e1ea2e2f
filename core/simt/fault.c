/* fault.c - where a kernel was stopped, in words. */
#include <stdarg.h>
#include <stdio.h>

#include "core/simt/machine.h"

sx_ptx_dim sx_ptx_thread_of(const sx_ptx_machine *m, uint32_t number)
{
    const sx_ptx_dim *size = &m->launch->block;
    number %= m->block_warps * SX_PTX_LANES;
    return (sx_ptx_dim){number % size->x, number / size->x % size->y, number / size->x / size->y};
}

const char *sx_ptx_thread_name(const sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t number,
                               char text[SX_PTX_THREAD_TEXT_MAX])
{
    uint32_t rank = number / SX_PTX_LANES / m->block_warps;
    SX_ASSERT(rank < m->block_count);
    const sx_ptx_dim t = sx_ptx_thread_of(m, number), *at = &m->block[rank].at;
    if (w != NULL && w->block == rank) {
        (void)snprintf(text, SX_PTX_THREAD_TEXT_MAX, "thread (%u,%u,%u)", t.x, t.y, t.z);
    } else {
        (void)snprintf(text, SX_PTX_THREAD_TEXT_MAX, "thread (%u,%u,%u) of block (%u,%u,%u)", t.x,
                       t.y, t.z, at->x, at->y, at->z);
    }
    return text;
}

uint64_t sx_ptx_shared_base(const sx_ptx_machine *m, uint32_t rank)
{
    SX_ASSERT(rank < m->block_count);
    return rank * m->shared_stride;
}

uint32_t sx_ptx_byte_of(const sx_ptx_machine *m, uint64_t offset)
{
    return (uint32_t)(offset % m->shared_stride);
}

const char *sx_ptx_shared_name(const sx_ptx_machine *m, const sx_ptx_warp *w, uint64_t offset,
                               char text[SX_PTX_SHARED_TEXT_MAX])
{
    uint64_t rank = offset / m->shared_stride;
    SX_ASSERT(rank < m->block_count);
    const sx_ptx_dim *at = &m->block[rank].at;
    if (rank == w->block) {
        return "shared memory";
    }
    (void)snprintf(text, SX_PTX_SHARED_TEXT_MAX, "the shared memory of block (%u,%u,%u)", at->x,
                   at->y, at->z);
    return text;
}

const char *sx_ptx_insn_name(const sx_ptx_machine *m, uint32_t insn,
                             char text[SX_PTX_INSN_TEXT_MAX])
{
    const sx_ptx_kernel *k = m->kernel;
    if (insn >= k->insn_count) {
        (void)snprintf(text, SX_PTX_INSN_TEXT_MAX, "the end of the kernel");
        return text;
    }
    sx_buf line;
    sx_buf_init(&line, SX_PTX_INSN_TEXT_MAX);
    sx_ptx_print_insn(m->launch->module, k, &k->insn[insn], &line);
    size_t len = line.len;
    while (len > 0 && (line.ptr[len - 1] == '\n' || line.ptr[len - 1] == ';')) {
        len--;
    }
    size_t from = 0;
    while (from < len && (line.ptr[from] == ' ' || line.ptr[from] == '\t')) {
        from++;
    }
    const size_t shown_max = SX_PTX_INSN_TEXT_MAX - 64;
    size_t shown = len - from < shown_max ? len - from : shown_max;
    int at = k->insn[insn].line == 0
                 ? snprintf(text, SX_PTX_INSN_TEXT_MAX, "instruction %u", insn)
                 : snprintf(text, SX_PTX_INSN_TEXT_MAX, "instruction %u (line %u)", insn,
                            k->insn[insn].line);
    (void)snprintf(text + at, SX_PTX_INSN_TEXT_MAX - (size_t)at, " `%.*s`", (int)shown,
                   shown == 0 ? "" : (const char *)line.ptr + from);
    sx_buf_fini(&line);
    return text;
}

sx_code sx_ptx_stop(sx_ptx_machine *m, const sx_ptx_warp *w, uint32_t lane, uint32_t insn,
                    sx_code code, const char *format, ...)
{
    SX_ASSERT(lane < SX_PTX_LANES && code != SX_OK);
    char name[SX_PTX_INSN_TEXT_MAX], text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sx_ptx_fault *fault = &m->outcome->fault;
    fault->found = code == SX_MISMATCH;
    fault->insn = insn;
    fault->line = insn < m->kernel->insn_count ? m->kernel->insn[insn].line : 0;
    fault->block = m->block[w->block].at;
    fault->thread = sx_ptx_thread_of(m, w->index * SX_PTX_LANES + lane);
    return SX_FAIL(m->cx, code, "kernel %s, %s, block (%u,%u,%u), thread (%u,%u,%u): %s",
                   m->kernel->name, sx_ptx_insn_name(m, insn, name), fault->block.x, fault->block.y,
                   fault->block.z, fault->thread.x, fault->thread.y, fault->thread.z, text);
}
