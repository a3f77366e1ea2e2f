#include "tests/client/cuda/fake/image.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fake_image_text(const void *image, int capability, const char *cubin, char *bytes)
{
    static const uint8_t magic[] = {0x7f, 'E', 'L', 'F'};
    const uint8_t *elf = image;
    if (memcmp(elf, magic, sizeof(magic)) != 0) {
        return image;
    }
    /* e_flags: with ELF ABI 7 the architecture in its low byte, with 8 in the next one. */
    int arch = elf[8] == 7 ? elf[48] : elf[49];
    if (arch != capability || cubin[0] == '\0') {
        return NULL;
    }
    FILE *file = fopen(cubin, "r");
    size_t n = file != NULL ? fread(bytes, 1, FAKE_TEXT_BYTES - 1, file) : 0;
    if (n == 0 || fclose(file) != 0) {
        (void)fprintf(stderr, "fake CUDA driver: no text for a cubin\n");
        abort();
    }
    bytes[n] = '\0';
    return bytes;
}
