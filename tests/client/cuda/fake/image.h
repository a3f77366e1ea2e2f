/* image.h - what the fake driver runs for code that it is given. */
#ifndef SX_TESTS_CLIENT_CUDA_FAKE_IMAGE_H
#define SX_TESTS_CLIENT_CUDA_FAKE_IMAGE_H
#define FAKE_TEXT_BYTES (1UL << 20)

/* Text: itself. A cubin for this capability: the text of the file `cubin`; NULL: it takes none. `bytes`: room for
 * FAKE_TEXT_BYTES. */
const char *fake_image_text(const void *image, int capability, const char *cubin, char *bytes);
#endif
