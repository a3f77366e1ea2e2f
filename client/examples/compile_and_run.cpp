// compile_and_run.cpp - the same as compile_and_run.c from C++11: handles and bytes that release themselves, and an
// exception for each failure. It uses nothing but client/symplex.h, here as an install has it.
//
//     c++ compile_and_run.cpp $(pkg-config --cflags --libs symplex)
//
// or, with CMake, find_package(symplex REQUIRED) and target_link_libraries(... symplex::symplex).
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <symplex.h>

namespace {

struct release {
    void operator()(symplex_client *client) const { symplex_close(client); }
    void operator()(symplex_module *module) const { symplex_module_close(module); }
    void operator()(void *bytes) const { symplex_free(bytes); }
};
template <typename T> using owned = std::unique_ptr<T, release>;

void check(const char *what, symplex_code code, const symplex_error &error)
{
    if (code != SYMPLEX_OK) {
        throw std::runtime_error(std::string(what) + ": " + error.text + " (" + error.name + ")");
    }
}

owned<symplex_module> compile(const char *path, const std::vector<symplex_dim> &dims)
{
    symplex_error error;
    symplex_client *client = nullptr;
    check("open", symplex_open(nullptr, &client, &error), error);
    owned<symplex_client> held(client);
    symplex_program program = {};
    program.path = path;
    program.dims = dims.data();
    program.dim_count = dims.size();
    void *bytes = nullptr;
    std::size_t size = 0;
    check("compile", symplex_compile(client, &program, &bytes, &size, nullptr, &error), error);
    owned<void> file(bytes);
    symplex_module *module = nullptr;
    check("load", symplex_module_open(bytes, size, 0, &module, &error), error);
    return owned<symplex_module>(module);
}

/* Memory for the tensor of this role and name, and its place in the call. */
std::vector<float> room(symplex_module *module, symplex_role role, const char *name,
                        std::vector<symplex_memory> &call)
{
    symplex_error error;
    symplex_tensor tensor;
    std::size_t index = symplex_module_find(module, role, name);
    check(name, symplex_module_tensor(module, index, &tensor, &error), error);
    std::vector<float> memory(tensor.size / sizeof(float));
    call.push_back({index, memory.data(), tensor.size});
    return memory;
}

void run(const char *path)
{
    const int rows = 4, columns = 10;
    symplex_error error;
    owned<symplex_module> module = compile(path, {{"batch", rows}});
    std::vector<symplex_memory> call;
    std::vector<float> x = room(module.get(), SYMPLEX_INPUT_TENSOR, "x", call);
    std::vector<float> y = room(module.get(), SYMPLEX_OUTPUT_TENSOR, "y", call);
    for (std::size_t k = 0; k < x.size(); k++) {
        x[k] = static_cast<float>(k * 37 % 101) / 101.0F;
    }
    check("run",
          symplex_module_call(module.get(), nullptr, 0, call.data(), call.size(), &error), error);
    for (int row = 0; row < rows; row++) {
        double sum = 0;
        for (int column = 0; column < columns; column++) {
            sum += y[static_cast<std::size_t>(row * columns + column)];
        }
        std::printf("row %d  sum %.6f\n", row, sum);
        if (std::fabs(sum - 1.0) > 1e-5) {
            throw std::runtime_error("a row of a softmax does not add up to 1");
        }
    }
}

} // namespace

int main(int argc, char **argv)
{
    try {
        run(argc > 1 ? argv[1] : "tests/models/mlp.onnx");
        return EXIT_SUCCESS;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return EXIT_FAILURE;
    }
}
