/* symplex_inside.h - what the files of the public library share. */
#ifndef SX_CLIENT_SYMPLEX_INSIDE_H
#define SX_CLIENT_SYMPLEX_INSIDE_H
#include "client/runtime/ranks.h"
#include "client/symplex.h"

/* What a weight was bound to by symplex_module_bind_weights. */
typedef struct {
    const void *memory;
    uint64_t version;
    bool known; /* false: it was bound by another call, or never */
} sxc_weight;

struct symplex_module {
    sxr_program *program;
    sxc_weight *weight; /* [count] */
    uint32_t *tensor;   /* [count] numbers in the module of the tensors of the interface */
    char **name;        /* [count] */
    size_t count;
    symplex_symbol *symbol; /* [symbol_count] without their values */
    char **symbol_name;     /* [symbol_count] */
    symplex_range *range;   /* of all symbols */
    size_t symbol_count;
    /* symplex_ranks.c: as the caller gave it, and for the runtime. */
    symplex_communicator caller;
    sxr_communicator communicator;
    bool agreed; /* since it joined, the ranks have found that they run the same module */
};

/* Each call has a context of its own. */
void sxc_call_begin(sx_ctx *cx);
/* Tells the caller how a call ended, without words. */
symplex_code sxc_call_tell(symplex_error *error, sx_code code);
/* Releases the context and tells the caller how the call ended. */
symplex_code sxc_call_finish(sx_ctx *cx, sx_code code, symplex_error *error);
/* A handle on an open program, which it takes, also on failure. */
sx_code sxc_module_make(sx_ctx *cx, SX_TAKE sxr_program *program, symplex_module **module);
/* A whole call that was wrong: SYMPLEX_USAGE. */
symplex_code sxc_call_misuse(symplex_error *error, const char *text);
/* As much as fits; "..." at the end says that it was cut. */
void sxc_copy_text(char *to, size_t size, sx_span from);
#endif
