# What `cmake --install` gives: the program, two static archives, the headers, a CMake package (find_package(mla) with
# mla::attention and mla::mla) and pkg-config files (mla-attention, mla).
#
# The archives are made of the folders' objects. They carry no usage requirement of the build (include paths of the
# source tree, warning flags): only what a program must link besides.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(folders GLOBAL PROPERTY MLA_FOLDERS)
# Kernels and cache for other runtimes; then the engine over them. The folders of the program alone stay in it.
set(attention_folders base ops cache attention)
set(model_folders ${folders})
list(REMOVE_ITEM model_folders ${attention_folders} cli server plan bench)

# mla_archive(TARGET OUTPUT_NAME EXPORT_NAME folder...)
function(mla_archive target output_name export_name)
  add_library(${target} STATIC)
  foreach(folder ${ARGN})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:mla_${folder}>)
  endforeach()
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output_name} EXPORT_NAME ${export_name} LINKER_LANGUAGE CXX)
endfunction()

mla_archive(mla_attention_archive mla-attention attention ${attention_folders})
target_link_libraries(mla_attention_archive PRIVATE fmt::fmt Threads::Threads)
mla_archive(mla_archive mla mla ${model_folders})
target_link_libraries(mla_archive PUBLIC mla_attention_archive PRIVATE fmt::fmt PkgConfig::PCRE2)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mla)
install(TARGETS mla_attention_archive EXPORT mla-attention-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS mla_archive EXPORT mla-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# One file of targets each: a program that wants attention alone needs no PCRE2.
install(EXPORT mla-attention-targets NAMESPACE mla:: DESTINATION ${package_dir})
install(EXPORT mla-targets NAMESPACE mla:: DESTINATION ${package_dir})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/mla DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET mla)
  install(TARGETS mla RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/mla-config.cmake.in ${CMAKE_BINARY_DIR}/mla-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mla-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mla-config.cmake ${CMAKE_BINARY_DIR}/mla-config-version.cmake
  DESTINATION ${package_dir})

# The pkg-config files find the prefix from where they lie, so that `cmake --install --prefix` may choose it.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
foreach(name mla-attention mla)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
