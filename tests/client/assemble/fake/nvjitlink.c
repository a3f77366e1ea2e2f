/* nvjitlink.c - an nvJitLink for tests, which need no CUDA toolkit with it: every text becomes a cubin with a record
 * that it makes up (tests/lib/gen_cubin.h).
 *
 * $SX_FAKE_NVJITLINK says what goes wrong; words are separated by spaces, NAME is part of a text:
 *   crash=NAME   it writes to address 0 at a text that has NAME
 *   refuse=NAME  an error
 *   spill=NAME   three spills in each entry of such a text */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/gen_cubin.h"

#define API __attribute__((visibility("default"))) int
#define NAME(function) __nvJitLink##function##_13_0

/* What the version of the file is read from. */
__attribute__((visibility("default"))) const char fake_nvjitlink_release[] =
    "Cuda compilation tools, release 13.0, V13.0.99";

typedef struct {
    sx_gen_cubin_record record;
    sx_buf cubin;
    char error[200];
} linker;

/* Does the text have what stands behind `word` in the settings? */
static bool concerns(const char *word, sx_span text)
{
    const char *settings = getenv("SX_FAKE_NVJITLINK");
    const char *at = settings != NULL ? strstr(settings, word) : NULL;
    size_t length = at != NULL ? strcspn(at + strlen(word), " ") : 0;
    return length > 0 && memmem(text.ptr, text.len, at + strlen(word), length) != NULL;
}

API NAME(Create)(void **handle, uint32_t count, const char **option);
API NAME(Create)(void **handle, uint32_t count, const char **option)
{
    linker *l = calloc(1, sizeof(*l));
    if (l == NULL || count == 0 || strncmp(option[0], "-arch=sm_", 9) != 0) {
        free(l);
        return 1;
    }
    l->record =
        (sx_gen_cubin_record){.arch = (uint32_t)strtoul(option[0] + 9, NULL, 10), .registers = 40};
    sx_buf_init(&l->cubin, (size_t)1 << 26);
    *handle = l;
    return 0;
}

API NAME(AddData)(void *handle, int kind, const void *bytes, size_t size, const char *name);
API NAME(AddData)(void *handle, int kind, const void *bytes, size_t size, const char *name)
{
    linker *l = handle;
    sx_span text = {bytes, size};
    if (kind != 2 || name == NULL) {
        return 1;
    }
    if (concerns("crash=", text)) {
        (void)signal(SIGSEGV, SIG_DFL); /* sanitizers would tell of it */
        (void)raise(SIGSEGV);
    }
    if (concerns("refuse=", text)) {
        (void)snprintf(l->error, sizeof(l->error), "ptxas fatal   : refused by the test\n");
        return 2;
    }
    l->record.spills = concerns("spill=", text) ? 3 : 0;
    sx_gen_cubin(text, &l->record, &l->cubin);
    return 0;
}

API NAME(Complete)(void *handle);
API NAME(Complete)(void *handle)
{
    linker *l = handle;
    return l->cubin.len > 0 ? 0 : 3;
}

API NAME(GetLinkedCubinSize)(void *handle, size_t *size);
API NAME(GetLinkedCubinSize)(void *handle, size_t *size)
{
    linker *l = handle;
    *size = l->cubin.len;
    return 0;
}

API NAME(GetLinkedCubin)(void *handle, void *bytes);
API NAME(GetLinkedCubin)(void *handle, void *bytes)
{
    linker *l = handle;
    memcpy(bytes, l->cubin.ptr, l->cubin.len);
    return 0;
}

API NAME(GetErrorLogSize)(void *handle, size_t *size);
API NAME(GetErrorLogSize)(void *handle, size_t *size)
{
    linker *l = handle;
    *size = strlen(l->error) + 1;
    return 0;
}

API NAME(GetErrorLog)(void *handle, char *text);
API NAME(GetErrorLog)(void *handle, char *text)
{
    linker *l = handle;
    memcpy(text, l->error, strlen(l->error) + 1);
    return 0;
}

API NAME(GetInfoLogSize)(void *handle, size_t *size);
API NAME(GetInfoLogSize)(void *handle, size_t *size)
{
    (void)handle;
    *size = 0;
    return 0;
}

API NAME(GetInfoLog)(void *handle, char *text);
API NAME(GetInfoLog)(void *handle, char *text)
{
    (void)handle, (void)text;
    return 0;
}

API NAME(Destroy)(void **handle);
API NAME(Destroy)(void **handle)
{
    linker *l = *handle;
    sx_buf_fini(&l->cubin);
    free(l);
    *handle = NULL;
    return 0;
}
