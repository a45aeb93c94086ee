# The console's files as a C++ source. Without esbuild or one of the libraries there is one page in their place that says what was missing.
set(console ${CMAKE_CURRENT_SOURCE_DIR}/console)
set(made ${CMAKE_CURRENT_BINARY_DIR}/console_files.cc)
file(GLOB console_sources CONFIGURE_DEPENDS ${console}/page/* ${console}/page/css/*)

find_program(CHORAL_ESBUILD esbuild)
find_program(CHORAL_GZIP gzip)
set(modules /usr/share/nodejs /usr/lib/nodejs /usr/share/javascript)
find_path(CHORAL_PREACT preact/src/preact.js PATHS ${modules} NO_DEFAULT_PATH)
find_path(CHORAL_MARKED marked/lib/marked.esm.js PATHS ${modules} NO_DEFAULT_PATH)
find_path(CHORAL_DOMPURIFY dompurify/dist/purify.es.js PATHS ${modules} NO_DEFAULT_PATH)
find_path(CHORAL_KATEX katex/katex.mjs PATHS ${modules} NO_DEFAULT_PATH)
find_path(CHORAL_HIGHLIGHT highlight.js/lib/highlight.js PATHS ${modules} NO_DEFAULT_PATH)

set(missing "")
foreach(part CHORAL_ESBUILD=esbuild CHORAL_GZIP=gzip CHORAL_PREACT=node-preact CHORAL_MARKED=node-marked CHORAL_DOMPURIFY=node-dompurify
    CHORAL_KATEX=libjs-katex CHORAL_HIGHLIGHT=node-highlight.js)
  string(REPLACE "=" ";" part ${part})
  list(GET part 0 variable)
  list(GET part 1 package)
  if(NOT ${variable})
    string(APPEND missing " ${package}")
  endif()
endforeach()
if(missing)
  message(STATUS "The console: not built, missing are the Debian packages${missing}")
endif()

add_custom_command(OUTPUT ${made}
  COMMAND ${CMAKE_COMMAND} "-DMISSING=${missing}" -DESBUILD=${CHORAL_ESBUILD} -DGZIP=${CHORAL_GZIP} -DPREACT=${CHORAL_PREACT}
    -DMARKED=${CHORAL_MARKED} -DDOMPURIFY=${CHORAL_DOMPURIFY} -DKATEX=${CHORAL_KATEX} -DHIGHLIGHT=${CHORAL_HIGHLIGHT}
    -DSOURCE=${console}/page -DWORK=${CMAKE_CURRENT_BINARY_DIR}/console -DOUT=${made} -P ${console}/bundle.cmake
  DEPENDS ${console_sources} ${console}/bundle.cmake VERBATIM)
target_sources(choral_serve PRIVATE ${made})
# Megabytes of constants in one file, which nothing else should be compiled with.
set_source_files_properties(${made} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
