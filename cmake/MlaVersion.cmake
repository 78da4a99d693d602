# The commit that `mla --version` names, refreshed at each build without rebuilding what has not changed.
set(MLA_VERSION_HEADER ${CMAKE_BINARY_DIR}/generated/mla_build_info.h)
add_custom_target(mla_build_info
  COMMAND ${CMAKE_COMMAND} -DOUT=${MLA_VERSION_HEADER} -DSOURCE=${CMAKE_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
    -DCOMPILER=${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION} -DTYPE=${CMAKE_BUILD_TYPE}
    -P ${CMAKE_SOURCE_DIR}/cmake/WriteBuildInfo.cmake
  BYPRODUCTS ${MLA_VERSION_HEADER} COMMENT "build info")
