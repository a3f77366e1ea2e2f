/* identity.c - a word for the kind of machine that this one is: of processor, and of graphics cards. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/runtime/cpu.h"
#include "core/base/hash.h"

#if defined(__x86_64__)
#include <cpuid.h>

static int processor(char word[SXR_IDENTITY_MAX])
{
    uint32_t a, b, c, d, signature = 0;
    char vendor[13] = "";
    if (__get_cpuid(0, &a, &b, &c, &d) == 0) {
        return snprintf(word, SXR_IDENTITY_MAX, "x86-64");
    }
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    for (char *at = vendor; *at != '\0'; at++) {
        *at = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ? *at : '_';
    }
    (void)__get_cpuid(1, &signature, &b, &c, &d);
    uint32_t family =
        (signature >> 8 & 15) + ((signature >> 8 & 15) == 15 ? signature >> 20 & 255 : 0);
    uint32_t model = (signature >> 4 & 15) | (signature >> 12 & 0xf0);
    return snprintf(word, SXR_IDENTITY_MAX, "%s-%u-%u-%u-%ld", vendor, family, model,
                    signature & 15, sysconf(_SC_NPROCESSORS_CONF));
}
#else
static int processor(char word[SXR_IDENTITY_MAX])
{
    return snprintf(word, SXR_IDENTITY_MAX, "other-%ld", sysconf(_SC_NPROCESSORS_CONF));
}
#endif

#define CARDS "/proc/driver/nvidia/gpus"
#define CARDS_MAX 64

/* A number of the model that the driver names in its file, whose first line is "Model: NAME"; 0: it names none. */
static uint64_t model_of(int folder, const char *card)
{
    char path[320], text[256];
    if (snprintf(path, sizeof(path), "%s/information", card) >= (int)sizeof(path)) {
        return 0;
    }
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0' ? sx_hash64(sx_span_of(text), 1) : 0;
}

/* The same for the same cards, in whatever order they are listed; 0: there are none. */
static uint64_t cards(void)
{
    uint64_t sum = 0;
    DIR *folder = opendir(CARDS);
    if (folder == NULL) {
        return 0;
    }
    const struct dirent *entry = readdir(folder);
    for (uint32_t i = 0; entry != NULL && i < CARDS_MAX; i++) {
        sum += entry->d_name[0] != '.' ? model_of(dirfd(folder), entry->d_name) : 0;
        entry = readdir(folder);
    }
    (void)closedir(folder);
    return sum;
}

void sxr_identity(char word[SXR_IDENTITY_MAX])
{
    int used = processor(word);
    uint64_t sum = cards();
    if (sum != 0 && used > 0 && used < SXR_IDENTITY_MAX) {
        (void)snprintf(word + used, (size_t)(SXR_IDENTITY_MAX - used), "-%08x",
                       (uint32_t)(sum ^ sum >> 32));
    }
}
