# The package symplex for Python, client/python: in the build tree as python/symplex, and as the install component
# "python", which client/python/backend.py makes a wheel of. It needs the headers of CPython 3.11 or later and is left
# out without them. A sanitizer's runtime would have to be in the interpreter, so builds with one leave it out too.
if(SX_SANITIZE OR SX_FUZZ)
    return()
endif()
find_package(Python3 3.11 COMPONENTS Interpreter Development.Module QUIET)
if(NOT Python3_Development.Module_FOUND)
    message(STATUS "the Python package is left out: no headers of Python 3.11 or later (python3-dev)")
    return()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/client/python/extension/*.c)
add_library(symplex-python MODULE ${sources})
target_include_directories(symplex-python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_link_libraries(symplex-python PRIVATE symplex sx_flags)
# The tables of CPython hold functions as void *.
set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -Wno-pedantic)
set_target_properties(symplex-python PROPERTIES PREFIX "" OUTPUT_NAME _c SUFFIX .abi3.so
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/symplex INSTALL_RPATH "$ORIGIN")
set(package ${CMAKE_SOURCE_DIR}/client/python/symplex)
file(GLOB_RECURSE modules RELATIVE ${package} CONFIGURE_DEPENDS ${package}/*.py ${package}/*.pyi ${package}/py.typed)
install(TARGETS symplex-python LIBRARY DESTINATION symplex COMPONENT python EXCLUDE_FROM_ALL)
foreach(module IN LISTS modules)
    configure_file(${package}/${module} ${CMAKE_BINARY_DIR}/python/symplex/${module} COPYONLY)
    get_filename_component(folder symplex/${module} DIRECTORY)
    install(FILES ${package}/${module} DESTINATION ${folder} COMPONENT python EXCLUDE_FROM_ALL)
endforeach()
install(FILES $<TARGET_FILE:symplex> DESTINATION symplex RENAME $<TARGET_SONAME_FILE_NAME:symplex>
    COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:symplex-client> DESTINATION symplex COMPONENT python EXCLUDE_FROM_ALL)
