# choral_library(kernels DEPS base tensor LIBS hwy::hwy)
#   src/kernels/**.cc except *_test.cc and *_bench.cc -> target choral_kernels;
#   *_test.cc -> one test program choral_kernels_test; *_bench.cc -> choral_kernels_bench.
# DEPS are folders of src/, LIBS anything else. Files whose path matches APART are compiled by
# themselves, ALONE all of them; those that match EXCEPT are not compiled. The order of layers is checked by tests/check_layers.py.
find_package(Threads REQUIRED)
if(CHORAL_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(CHORAL_BUILD_BENCHES)
  find_package(benchmark REQUIRED)
endif()

# choral_unite(TARGET SOURCES): sources of one folder are compiled together, up to eight at a time, since most of a small file's time goes
# into headers. So names of one folder's files are to be different, in anonymous namespaces too. CHORAL_UNITE=OFF compiles each by itself,
# which shows what a file forgot to include.
option(CHORAL_UNITE "Compile the sources of a folder together" ON)
function(choral_unite target)
  if(NOT CHORAL_UNITE)
    return()
  endif()
  foreach(source ${ARGN})
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    math(EXPR group "(${count_${folder}} - 1) / 8")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${folder}_${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # which takes these files for headers
  endif()
endfunction()

function(choral_library name)
  cmake_parse_arguments(ARG "ALONE" "EXCEPT" "APART;DEPS;LIBS;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(ARG_EXCEPT)
    list(FILTER all EXCLUDE REGEX "${ARG_EXCEPT}")
  endif()
  set(tests ${all})
  set(benches ${all})
  set(sources ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")

  list(TRANSFORM ARG_DEPS PREPEND choral_)
  add_library(choral_${name} STATIC ${sources})
  if(NOT ARG_ALONE)
    choral_unite(choral_${name} ${sources})
  endif()
  foreach(pattern ${ARG_APART})
    set(apart ${all})
    list(FILTER apart INCLUDE REGEX "${pattern}")
    set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  target_link_libraries(choral_${name} PUBLIC $<BUILD_INTERFACE:choral_flags> ${ARG_DEPS} ${ARG_LIBS} Threads::Threads)

  if(CHORAL_BUILD_TESTS AND tests)
    choral_test(choral_${name}_test SOURCES ${tests} LIBS choral_${name} ${ARG_TEST_LIBS})
  endif()
  if(CHORAL_BUILD_BENCHES AND benches)
    add_executable(choral_${name}_bench ${benches})
    target_link_libraries(choral_${name}_bench PRIVATE choral_${name} benchmark::benchmark_main)
  endif()
endfunction()

# A GoogleTest program; every test case becomes one line of ctest, with the label `fast`. Runs in tests/ so that `data/…` is found.
function(choral_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  choral_unite(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} $<BUILD_INTERFACE:choral_flags> GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CHORAL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  gtest_discover_tests(${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT 600 LABELS fast)
endfunction()
