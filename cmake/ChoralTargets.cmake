# choral_library(kernels DEPS base tensor LIBS hwy::hwy)
#   src/kernels/**.cc except *_test.cc and *_bench.cc -> target choral_kernels;
#   *_test.cc -> one test program choral_kernels_test; *_bench.cc -> choral_kernels_bench.
# DEPS are folders of src/, LIBS anything else. The order of layers is checked by tests/check_layers.py.
find_package(Threads REQUIRED)
if(CHORAL_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(CHORAL_BUILD_BENCHES)
  find_package(benchmark REQUIRED)
endif()

function(choral_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${all})
  set(benches ${all})
  set(sources ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")

  list(TRANSFORM ARG_DEPS PREPEND choral_)
  add_library(choral_${name} STATIC ${sources})
  target_link_libraries(choral_${name} PUBLIC $<BUILD_INTERFACE:choral_flags> ${ARG_DEPS} ${ARG_LIBS} Threads::Threads)

  if(CHORAL_BUILD_TESTS AND tests)
    choral_test(choral_${name}_test SOURCES ${tests} LIBS choral_${name} ${ARG_TEST_LIBS})
  endif()
  if(CHORAL_BUILD_BENCHES AND benches)
    add_executable(choral_${name}_bench ${benches})
    target_link_libraries(choral_${name}_bench PRIVATE choral_${name} benchmark::benchmark_main)
  endif()
endfunction()

# A GoogleTest program; every test case becomes one line of ctest. Runs in tests/ so that `data/…` is found.
function(choral_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} $<BUILD_INTERFACE:choral_flags> GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE CHORAL_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  gtest_discover_tests(${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT 600)
endfunction()
