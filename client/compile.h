/* compile.h - a program to a module: from the daemon's cache, by the daemon, or in a worker process of our own. */
#ifndef SX_CLIENT_COMPILE_H
#define SX_CLIENT_COMPILE_H
#include "client/source.h"
#include "protocol/message.h"

typedef enum {
    SXC_MODE_AUTO, /* the daemon if one answers that is to be believed, else in process */
    SXC_MODE_ONLY, /* SX_NODAEMON if none answers, SX_DENIED if it is a stranger's */
    SXC_MODE_NEVER /* in process */
} sxc_daemon_mode;
typedef struct {
    const char *socket; /* NULL: the default path */
    sxc_daemon_mode daemon;
    bool refresh; /* compile again and replace what is stored */
    /* Called once for each thing to say, such as "no daemon at ..., compiling in process"; may be NULL. */
    void (*message)(void *self, const char *text);
    /* Is called as the work goes on; may be NULL. */
    void (*progress)(void *self, const char *stage, uint64_t done, uint64_t total);
    void *self;          /* of message */
    void *progress_self; /* of progress */
    /* The symplex-client that compiles where no daemon does; NULL: it is looked for (spawn.h). */
    const char *program;
} sxc_compile_options;
typedef struct {
    /* "ram", "disk": a hit; "none": compiled by the daemon; "process": compiled here */
    char tier[16];
    uint64_t cost_us;  /* what compiling took, then or now */
    uint64_t total_us; /* what this call took */
    sx_key key;
    bool met;       /* a semantic hit: the program was found equal to a stored one */
    sx_key met_key; /* which */
    /* by which rules, separated by commas, cut at the end; empty: the same terms */
    char rules[1024];
} sxc_compile_info;

/* The name of the target that suits this processor best; of the first in the table where it executes none. */
const char *sxc_native_target(void);
/* Reads "native" as the above, everything else as it is. */
sx_span sxc_target(sx_span name);

/* `request->ir` and the target "native" are filled in from `source` and the processor. The module carries no
 * weights. */
sx_code sxc_compile(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                    const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info);
/* Level 1 only: a module without kernels, which carries the extracted program, the report and the certificate. */
sx_code sxc_optimize(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                     const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info);

/* The request as it travels: `request->ir` from `source`, "native" as it is here; arrays in cx's arena. */
sx_code sxc_compile_args(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                         sx_compile_args *args);
#endif
