# One target per folder of src/, with the edges of docs/design.md. Folders are OBJECT libraries: the two installed
# archives (cmake/MlaInstall.cmake) are made of their objects.

add_library(mla_options INTERFACE)
target_include_directories(mla_options INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_options(mla_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-unused-parameter
  # No contraction: a product's bits must not depend on which loop the compiler fused it in. Kernels ask for FMA by name.
  -ffp-contract=off)
if(MLA_WARNINGS_AS_ERRORS)
  target_compile_options(mla_options INTERFACE -Werror)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(MLA_X86 ON)
  target_compile_options(mla_options INTERFACE -march=x86-64-v2)
endif()
if(MLA_CHECKS)
  target_compile_definitions(mla_options INTERFACE MLA_ENABLE_DCHECKS=1)
endif()
if(MLA_SCALAR_ONLY)
  target_compile_definitions(mla_options INTERFACE MLA_SCALAR_ONLY=1)
endif()
if(MLA_SANITIZE)
  target_compile_options(mla_options INTERFACE -fsanitize=${MLA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(mla_options INTERFACE -fsanitize=${MLA_SANITIZE})
endif()
if(MLA_FUZZ)
  target_compile_options(mla_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# mla_folder(NAME [DEPS folder...] [LIBS target...]): the target mla_NAME, of every .cc file in the current folder.
# DEPS are the folders that it may include; tests/structure holds the includes to the same list.
function(mla_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  if(NOT sources)
    return()
  endif()
  add_library(mla_${name} OBJECT ${sources})
  set_target_properties(mla_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(mla_${name} PUBLIC mla_options ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    if(TARGET mla_${dep})
      target_link_libraries(mla_${name} PUBLIC mla_${dep})
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY MLA_FOLDERS ${name})
endfunction()

# mla_isa_sources(NAME): files of the current folder named *_avx2.cc and *_avx512.cc get the flags of their instruction
# set. They hold kernels alone, no inline code that another file could share.
function(mla_isa_sources)
  file(GLOB avx2 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_avx2.cc)
  file(GLOB avx512 CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_avx512.cc)
  if(MLA_X86 AND NOT MLA_SCALAR_ONLY)
    if(avx2)
      set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    endif()
    if(avx512)
      set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl"
        # GCC 12's own AVX-512 headers start registers from themselves (its bug 105593).
        "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>")
    endif()
  endif()
endfunction()
