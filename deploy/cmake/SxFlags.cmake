# Warnings and code generation flags of every target (STYLE: flags).
add_library(sx_flags INTERFACE)
target_compile_options(sx_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wundef -Wformat=2 -Wdouble-promotion -Wcast-qual -Wcast-align -Wwrite-strings -Wnull-dereference
    -Wimplicit-fallthrough
    -fno-common -fno-strict-aliasing -ffp-contract=off -fstack-protector-strong -fvisibility=hidden)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(sx_flags INTERFACE -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wmismatched-dealloc)
endif()
if(SX_WERROR)
    target_compile_options(sx_flags INTERFACE -Werror)
endif()
if(SX_SANITIZE)
    target_compile_options(sx_flags INTERFACE -fsanitize=${SX_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(sx_flags INTERFACE -fsanitize=${SX_SANITIZE})
endif()
if(SX_COVERAGE)
    target_compile_options(sx_flags INTERFACE --coverage)
    target_compile_definitions(sx_flags INTERFACE SX_COVERAGE=1) # branches of SX_NEVER do not count
    target_link_options(sx_flags INTERFACE --coverage)
endif()
if(SX_FUZZ)
    target_compile_options(sx_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
# -Wpedantic rejects #embed-like tricks; POSIX interfaces are wanted everywhere outside the pure core.
target_compile_definitions(sx_flags INTERFACE _GNU_SOURCE $<$<CONFIG:Debug>:SX_DEBUG=1>)
target_include_directories(sx_flags INTERFACE ${CMAKE_SOURCE_DIR})
