# cmake --install build/release --prefix /usr/local: programs, the C library with its header, symplex.pc and CMake
# package (find_package(symplex), target symplex::symplex), man page, completion, units.
# The units and symplex.pc name their places under the prefix given to the install.
install(TARGETS symplexd symplex-client RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS symplex EXPORT symplex LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/symplexConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(EXPORT symplex FILE symplexConfig.cmake NAMESPACE symplex::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/symplex)
install(FILES ${CMAKE_BINARY_DIR}/generated/symplexConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/symplex)
install(FILES client/symplex.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES deploy/man/symplex-client.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES deploy/completion/symplex-client.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME symplex-client)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(CODE "
    set(SX_PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
    set(SX_VERSION ${PROJECT_VERSION})
    set(SX_LIBDIR ${CMAKE_INSTALL_LIBDIR})
    set(SX_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
    configure_file(${CMAKE_SOURCE_DIR}/deploy/symplex.pc.in
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig/symplex.pc\" @ONLY)
    foreach(unit user/symplexd.service system/symplexd@.service)
        get_filename_component(name \${unit} NAME)
        file(READ ${CMAKE_SOURCE_DIR}/deploy/systemd/\${name} text)
        string(REPLACE /usr/bin/symplexd \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/symplexd\"
            text \"\${text}\")
        file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/\${unit}\" \"\${text}\")
    endforeach()")
