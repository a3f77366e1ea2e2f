/* compile.h - a program to a module: from the daemon's cache, by the daemon, or in a worker process of our own. */
#ifndef SX_CLIENT_COMPILE_H
#define SX_CLIENT_COMPILE_H
#include "client/source.h"
#include "protocol/message.h"

typedef enum {
    /* The daemon compiles if one answers that is to be believed, else a process of our own. */
    SXC_MODE_AUTO,
    /* SX_NODAEMON if no daemon answers, SX_DENIED if it is a stranger's. */
    SXC_MODE_ONLY,
    /* A process of our own compiles. */
    SXC_MODE_NEVER
} sxc_daemon_mode;
typedef struct {
    /* Where the daemon listens. NULL: the default path. */
    const char *socket;
    sxc_daemon_mode daemon;
    /* Compile again and replace what is stored. */
    bool refresh;
    /* Measured rows for a compilation in process whose request brings none: a daemon has its own. */
    sx_span measured;
    /* Is called once for each thing to say, such as "no daemon at ..., compiling in process"; may be NULL. */
    void (*message)(void *self, const char *text);
    /* Is called as the work goes on; may be NULL. */
    void (*progress)(void *self, const char *stage, uint64_t done, uint64_t total);
    /* What the two functions above are called with. */
    void *self;
    void *progress_self;
    /* The symplex-client that compiles where no daemon does. NULL: it is looked for (spawn.h). */
    const char *program;
    /* For modules: `find` is asked before anything is compiled, SX_ABSENT if nothing is known, and `commit` is told
     * what came out, which it may replace. Both NULL: nobody is asked. */
    sx_code (*find)(sx_ctx *cx, void *pins, const sx_key *key, sx_buf *module);
    sx_code (*commit)(sx_ctx *cx, void *pins, const sx_key *key, sx_buf *module);
    void *pins;
} sxc_compile_options;
typedef struct {
    /* "session": the pinned one; "ram" and "disk" are hits of the daemon's cache; "none": the daemon compiled;
     * "process": we did. */
    char tier[16];
    /* What compiling took, whether it was now or earlier. */
    uint64_t cost_us;
    /* What this call took. */
    uint64_t total_us;
    sx_key key;
    /* The program met a stored one, whose key is the next field: the rules make the two equal. */
    bool met;
    sx_key met_key;
    /* The rules by which it is equal, separated by commas and cut at the end. Empty: it has the same terms. */
    char rules[1024];
} sxc_compile_info;

/* The name of the target that suits this processor best; of the first in the table where it executes none. */
const char *sxc_native_target(void);
/* Reads "native" as the above, everything else as it is. */
sx_span sxc_target(sx_span name);

/* `request->ir` and the target "native" are filled in from `source` and the processor. The module carries no
 * weights. cx->cancelled is asked every SXC_ASK_MS while something is waited for: SX_CANCELLED, and what was begun for
 * this call alone is stopped. */
sx_code sxc_compile(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                    const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info);
/* Level 1 only: a module without kernels, which carries the extracted program, the report and the certificate. */
sx_code sxc_optimize(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                     const sxc_compile_options *options, sx_buf *module, sxc_compile_info *info);

/* The request as it travels: `request->ir` from `source`, "native" as it is here; arrays in cx's arena. */
sx_code sxc_compile_args(sx_ctx *cx, const sxc_source *source, const sx_core_request *request,
                         sx_compile_args *args);
#endif
