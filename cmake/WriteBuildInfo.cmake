execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown")
endif()
set(text "#define MLA_BUILD_VERSION \"${VERSION}\"
#define MLA_BUILD_COMMIT \"${commit}\"
#define MLA_BUILD_COMPILER \"${COMPILER}\"
#define MLA_BUILD_TYPE \"${TYPE}\"
")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
