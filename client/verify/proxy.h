/* proxy.h - inside client/verify: a module that stands for one whose outputs cannot be compared with the program as
 * sent, because that takes too long, or because its code is emulated and only a part of it ran.
 *
 * The optimised program of a module is a text with the symbols of the program that was sent. It is compiled once more,
 * for other values of the symbols or for the processor at hand, to a module that can be compared whole: a rewrite that
 * is wrong is wrong there, too. That the kernels of the first module compute what the nodes of the optimised program
 * say is for their sampled elements, and for the blocks that were emulated, to show.
 */
#ifndef SX_CLIENT_VERIFY_PROXY_H
#define SX_CLIENT_VERIFY_PROXY_H
#include "client/runtime/runtime.h"
#include "core/core.h"

typedef struct {
    sx_span sent; /* the text of the program as it was sent */
    /* Whose code the proxy is; NULL: that of the machine whose code is verified. */
    const sx_machine *machine;
    const sx_targets *targets; /* as in sx_core_request */
    /* The extents of the module; else each symbol gets 3, or 2, or the least value that it may have: as few as show
     * whether elements along it are told apart. */
    bool same_extents;
    double flops_max; /* at smaller extents, of the program as sent */
} sxv_proxy_wish;

#define SXV_PROXY_TEXT 128
typedef struct {
    bool found;
    /* What it is: "at batch=3", "on this processor"; or why there is none. */
    char text[SXV_PROXY_TEXT];
} sxv_proxy;

/* Compiles a proxy into `module`.  errors  those of the compiler */
sx_code sxv_proxy_compile(sx_ctx *cx, const sxr_program *program, const sxv_proxy_wish *wish,
                          sx_buf *module, sxv_proxy *proxy);
/* The name of the device that a module is for; of one for several machines, of that whose code is compared. */
sx_span sxv_target_of(const sxr_program *program);
#endif
