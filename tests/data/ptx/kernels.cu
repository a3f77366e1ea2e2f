// Kernels for the tests of the PTX interpreter: kernels.ptx is what nvcc 13.0 makes of this file
// (nvcc -ptx -arch=sm_80 -O3), without its comments. The lower half has kernels with one fault each.
#include <cuda_fp16.h>

extern "C" __global__ void vector_add(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

// One block for a row; blocks of whole warps.
extern "C" __global__ void softmax(const float *x, float *y, int columns)
{
    extern __shared__ float row[];
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = x[blockIdx.x * columns + i];
        most = fmaxf(most, row[i]);
    }
    for (int d = 16; d > 0; d /= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, d));
    }
    if (lane == 0) {
        part[warp] = most;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        most = fmaxf(most, part[i]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = __expf(row[i] - most);
        sum += row[i];
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, d);
    }
    if (lane == 0) {
        part[warp] = sum;
    }
    __syncthreads();
    sum = 0;
    for (int i = 0; i < warps; i++) {
        sum += part[i];
    }
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        y[blockIdx.x * columns + i] = row[i] / sum;
    }
}

extern "C" __global__ void histogram(const unsigned *x, unsigned *bins, int n)
{
    __shared__ unsigned count[64];
    if (threadIdx.x < 64) {
        count[threadIdx.x] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&count[x[i] % 64], 1);
    }
    __syncthreads();
    if (threadIdx.x < 64) {
        atomicAdd(&bins[threadIdx.x], count[threadIdx.x]);
    }
}

// Blocks of 32 x 8.
template <bool ordered> __device__ void transpose_tile(const float *x, float *y, int rows, int columns)
{
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (r + k < rows && c < columns) {
            tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * columns + c];
        }
    }
    if (ordered) {
        __syncthreads();
    }
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) {
        if (r + k < columns && c < rows) {
            y[(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
        }
    }
}

extern "C" __global__ void transpose(const float *x, float *y, int rows, int columns)
{
    transpose_tile<true>(x, y, rows, columns);
}

// Blocks of 16 x 16; extents are multiples of 16.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float left[16][16], right[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int p = 0; p < k; p += 16) {
        left[ty][tx] = a[row * k + p + tx];
        right[ty][tx] = b[(p + ty) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            sum += left[ty][i] * right[i][tx];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__device__ void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

// The same with two stages; `commits` and `waits` false plant a fault.
template <bool commits, bool waits> __device__ void matmul_stages(const float *a, const float *b, float *c, int n, int k)
{
    __shared__ float left[2][16][16], right[2][16][16];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float sum = 0;
    copy_async(&left[0][ty][tx], &a[row * k + tx]);
    copy_async(&right[0][ty][tx], &b[ty * n + column]);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int p = 0; p < k; p += 16) {
        int now = p / 16 % 2, next = 1 - now;
        if (p + 16 < k) {
            copy_async(&left[next][ty][tx], &a[row * k + p + 16 + tx]);
            copy_async(&right[next][ty][tx], &b[(p + 16 + ty) * n + column]);
        }
        if (commits) {
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        if (waits) {
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        }
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            sum += left[now][ty][i] * right[now][i][tx];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void matmul_async(const float *a, const float *b, float *c, int n, int k)
{
    matmul_stages<true, true>(a, b, c, n, k);
}

// One warp for a tile of 16 x 8; a is row-major, b is column-major (n x k), k a multiple of 16.
extern "C" __global__ void matmul_mma(const half *a, const half *b, float *c, int n, int k)
{
    __shared__ __align__(16) half left[16][16], right[8][16];
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {0, 0, 0, 0};
    for (int p = 0; p < k; p += 16) {
        for (int i = lane; i < 256; i += 32) {
            left[i / 16][i % 16] = a[(row + i / 16) * k + p + i % 16];
        }
        for (int i = lane; i < 128; i += 32) {
            right[i / 16][i % 16] = b[(column + i / 16) * k + p + i % 16];
        }
        __syncwarp();
        unsigned x[4], y[2];
        unsigned from = (unsigned)__cvta_generic_to_shared(&left[lane % 16][lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(from));
        from = (unsigned)__cvta_generic_to_shared(&right[lane % 8][lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(from));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {
        c[(row + lane / 4 + i / 2 * 8) * n + column + lane % 4 * 2 + i % 2] = d[i];
    }
}

// The same with factors of f32 that are rounded to tf32, read one by one; k a multiple of 8.
extern "C" __global__ void matmul_tf32(const float *a, const float *b, float *c, int n, int k)
{
    int lane = threadIdx.x, row = blockIdx.y * 16 + lane / 4, column = blockIdx.x * 8 + lane / 4;
    float d[4] = {0, 0, 0, 0};
    for (int p = lane % 4; p < k; p += 8) {
        float from[6] = {a[row * k + p],     a[(row + 8) * k + p], a[row * k + p + 4], a[(row + 8) * k + p + 4],
                         b[column * k + p], b[column * k + p + 4]};
        unsigned x[6];
        for (int i = 0; i < 6; i++) {
            asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[i]) : "f"(from[i]));
        }
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]));
    }
    for (int i = 0; i < 4; i++) {
        c[(row + i / 2 * 8) * n + blockIdx.x * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

// Steps of the Collatz sequence: each thread leaves the loop when it likes.
extern "C" __global__ void collatz(const unsigned *x, unsigned *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    unsigned value = x[i], count = 0;
    while (value != 1) {
        if (value % 2 == 0) {
            value /= 2;
        } else {
            value = 3 * value + 1;
        }
        count++;
    }
    steps[i] = count;
}

// ---- one fault each ----
extern "C" __global__ void no_barrier(const float *x, float *y, int rows, int columns)
{
    transpose_tile<false>(x, y, rows, columns);
}

extern "C" __global__ void one_too_many(const float *a, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        c[i] = a[i];
    }
}

extern "C" __global__ void no_commit(const float *a, const float *b, float *c, int n, int k)
{
    matmul_stages<false, true>(a, b, c, n, k);
}

extern "C" __global__ void no_wait(const float *a, const float *b, float *c, int n, int k)
{
    matmul_stages<true, false>(a, b, c, n, k);
}

extern "C" __global__ void half_shuffle(int *y)
{
    int value = threadIdx.x;
    if (threadIdx.x < 16) {
        value = __shfl_xor_sync(0xffffffff, value, 1);
    }
    y[threadIdx.x] = value;
}

extern "C" __global__ void half_barrier(int *y)
{
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 32 < 16) {
        asm volatile("bar.sync 1;" ::: "memory");
    }
    __syncthreads();
    y[threadIdx.x] = part[63 - threadIdx.x];
}

extern "C" __global__ void read_first(int *y)
{
    __shared__ int part[64];
    if (threadIdx.x > 0) {
        part[threadIdx.x] = threadIdx.x;
    }
    __syncthreads();
    y[threadIdx.x] = part[63 - threadIdx.x];
}

extern "C" __global__ void two_barriers(int *y)
{
    if (threadIdx.x < 32) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 64;" ::: "memory");
    }
    y[threadIdx.x] = 1;
}

extern "C" __global__ void same_element(int *y)
{
    if (threadIdx.x == 0) {
        y[0] = blockIdx.x;
    }
}

extern "C" __global__ void for_ever(int *y)
{
    while (((volatile int *)y)[threadIdx.x] == 0) {
    }
}
