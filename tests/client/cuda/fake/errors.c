/* errors.c - what the fake driver calls its errors. */
#define API __attribute__((visibility("default"))) int
/* Numbers of cuda.h. */
enum { INVALID_VALUE = 1, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

API cuGetErrorName(int code, const char **name);
API cuGetErrorName(int code, const char **name)
{
    *name = code == LAUNCH_FAILED     ? "CUDA_ERROR_LAUNCH_FAILED"
            : code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                      : "CUDA_ERROR_OF_A_TEST";
    return 0;
}

API cuGetErrorString(int code, const char **text);
API cuGetErrorString(int code, const char **text)
{
    *text = "said by the fake driver";
    return code == 999 ? INVALID_VALUE : 0;
}
