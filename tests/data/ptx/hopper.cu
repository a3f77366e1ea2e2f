// Kernels for the tests of the interpreter: what Hopper adds to CUDA, written out as inline PTX. C = A B with B given
// by its columns, all through the copy engine, barriers in shared memory and products of warpgroups. nvcc makes
// hopper.ptx of it; tests/core/simt/test_run_nvcc.py says how, and that it is the same.
#include <cstdint>

struct alignas(64) TensorMap {
    unsigned char bytes[128];
};

static __device__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

static __device__ void barrier_init(uint64_t *b, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}

static __device__ void barrier_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}

static __device__ void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

static __device__ void barrier_wait(uint64_t *b, uint32_t parity)
{
    asm volatile("{\n.reg .pred over;\nagain:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], %1;\n"
                 "@over bra done;\nbra again;\ndone:\n}\n" ::"r"(shared_address(b)),
                 "r"(parity)
                 : "memory");
}

static __device__ void proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ void load_box(void *to, const TensorMap *map, int x, int y, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(b))
                 : "memory");
}

static __device__ void store_box(const TensorMap *map, int x, int y, const void *from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(x), "r"(y), "r"(shared_address(from))
                 : "memory");
}

static __device__ void store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

static __device__ void store_wait()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Rows of 128 bytes, swizzled: 8 rows are 1024 bytes.
static __device__ uint64_t descriptor(const void *p)
{
    return (uint64_t)(shared_address(p) >> 4 & 0x3FFF) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

static __device__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int adds)
{
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12,"
        " %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33,"
        " adds, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(adds));
}

constexpr int STAGES = 2, ROWS = 64, COLUMNS = 64, DEPTH = 64, TILE_BYTES = ROWS * DEPTH * 2;

// One warpgroup multiplies, one warp copies; C leaves through shared memory in boxes of 64 x 32 f32 (128 bytes, with
// the swizzle). 160 threads; dynamic shared memory: two stages of A and B, 16 KiB of C.
extern "C" __global__ void __launch_bounds__(160)
    ring(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
         int steps)
{
    extern __shared__ __align__(1024) unsigned char tiles[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    unsigned char *slab = tiles + 2 * STAGES * TILE_BYTES;
    int row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 1);
        }
        barrier_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) {
#pragma unroll 1
            for (int k = 0; k < steps; k++) {
                int stage = k % STAGES;
                unsigned char *at = tiles + 2 * stage * TILE_BYTES;
                barrier_wait(&empty[stage], (k / STAGES & 1) ^ 1);
                barrier_expect(&full[stage], 2 * TILE_BYTES);
                load_box(at, &a, k * DEPTH, row, &full[stage]);
                load_box(at + TILE_BYTES, &b, k * DEPTH, column, &full[stage]);
            }
        }
        return;
    }
    float sum[32];
    for (int i = 0; i < 32; i++) {
        sum[i] = 0.0F;
    }
#pragma unroll 1
    for (int k = 0; k < steps; k++) {
        int stage = k % STAGES;
        const unsigned char *at = tiles + 2 * stage * TILE_BYTES;
        barrier_wait(&full[stage], k / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < DEPTH / 16; i++) {
            multiply(sum, descriptor(at + 32 * i), descriptor(at + TILE_BYTES + 32 * i), k + i > 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (k > 0) {
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (threadIdx.x == 0) {
                barrier_arrive(&empty[(k - 1) % STAGES]);
            }
        }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 32; i += 2) {
        int r = 16 * warp + lane / 4 + i / 2 % 2 * 8, x = i / 4 * 8 + lane % 4 * 2;
        int byte = x / 32 * (ROWS * 128) + r * 128 + x % 32 * 4;
        *reinterpret_cast<float2 *>(slab + (byte ^ (r & 7) << 4)) = make_float2(sum[i], sum[i + 1]);
    }
    proxy_fence();
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
        store_box(&c, column, row, slab);
        store_box(&c, column + 32, row, slab + ROWS * 128);
        store_commit();
        store_wait();
    }
}
