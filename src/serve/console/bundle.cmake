# cmake -DSOURCE=… -DWORK=… -DOUT=… -P bundle.cmake: what a browser loads of the console, as the table of console_files.h. Scripts and
# styles go through esbuild and gzip; parts that are loaded when they are used become files named by their content.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

if(NOT MISSING STREQUAL "")
  file(READ ${SOURCE}/missing.html page)
  string(REPLACE "PACKAGES" "${MISSING}" page "${page}")
  file(WRITE ${WORK}/index.html "${page}")
else()
  # DOMPurify 2.4.1 as Debian patched it names a variable that is not there, where it looks at the depth of the root: that is 0.
  execute_process(COMMAND ${ESBUILD} ${SOURCE}/main.tsx --bundle --splitting --format=esm --minify --target=es2020 --charset=utf8
    --legal-comments=none --pure:console.log "--define:shadowNode={\"__depth\":0}" --jsx-factory=h --log-level=warning --chunk-names=[name]-[hash]
    --alias:preact=${PREACT}/preact/src/preact.js --alias:marked=${MARKED}/marked/lib/marked.esm.js
    --alias:dompurify=${DOMPURIFY}/dompurify/dist/purify.es.js --alias:katex=${KATEX}/katex/katex.mjs
    --alias:highlight.js=${HIGHLIGHT}/highlight.js/lib --outdir=${WORK} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${ESBUILD} ${SOURCE}/theme.ts --minify --target=es2020 --log-level=warning --outdir=${WORK} COMMAND_ERROR_IS_FATAL ANY)
  file(COPY ${SOURCE}/index.html ${SOURCE}/icon.svg DESTINATION ${WORK})
endif()

file(GLOB files RELATIVE ${WORK} ${WORK}/*)
set(text "#include \"serve/console/console_files.h\"\n\n#include <array>\n\nnamespace choral::serve {\nnamespace {\n\n")
set(table "")
list(LENGTH files count)
set(number 0)
foreach(name ${files})
  string(REGEX MATCH "[a-z]+$" ending ${name})
  set(type_html "text/html; charset=utf-8")
  set(type_js "text/javascript; charset=utf-8")
  set(type_css "text/css; charset=utf-8")
  set(type_svg "image/svg+xml")
  file(SHA256 ${WORK}/${name} digest)
  string(SUBSTRING ${digest} 0 16 digest)
  set(file ${WORK}/${name})
  set(is_gzip false)
  if(NOT ending STREQUAL html)  # the page is small, and anybody can read it
    execute_process(COMMAND ${GZIP} -9 -n -k ${file} COMMAND_ERROR_IS_FATAL ANY)
    set(file ${file}.gz)
    set(is_gzip true)
  endif()
  set(is_named false)
  if(name MATCHES "-[A-Z0-9]+\\.")
    set(is_named true)
  endif()
  file(READ ${file} bytes HEX)
  file(SIZE ${file} size)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND text "constexpr char kBytes${number}[] = \"${bytes}\";\n")
  string(APPEND table "    {\"${name}\", \"${type_${ending}}\", \"\\\"${digest}\\\"\", ${is_gzip}, ${is_named}, {kBytes${number}, ${size}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
string(APPEND text "\nconstexpr std::array<ConsoleFile, ${count}> kFiles{{\n${table}}};\n\n}  // namespace\n\n"
  "std::span<const ConsoleFile> console_files() { return kFiles; }\n\n}  // namespace choral::serve\n")
file(WRITE ${OUT} "${text}")
