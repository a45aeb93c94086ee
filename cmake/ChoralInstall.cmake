# The library that other programs link: one shared libchoral.so with the public symbols only, its headers, find_package(Choral) and
# `pkg-config choral`.
#   choral_shared_library(LAYERS base tensor … engine)   makes target `choral` (alias Choral::choral) and its install rules
# The objects of the layers go in whole: of a static library the linker would take only those that another object needs, and nothing inside
# needs the public functions. Nothing registers itself at start-up; families and schemes stand in tables.
include(CMakePackageConfigHelpers)

function(choral_shared_library)
  cmake_parse_arguments(ARG "" "" "LAYERS" ${ARGN})
  list(TRANSFORM ARG_LAYERS REPLACE "(.+)" "$<TARGET_OBJECTS:choral_\\1>" OUTPUT_VARIABLE objects)
  list(TRANSFORM ARG_LAYERS PREPEND choral_)
  add_library(choral SHARED ${objects})
  add_library(Choral::choral ALIAS choral)
  target_link_libraries(choral PRIVATE ${ARG_LAYERS})  # their libraries; no object is taken twice
  target_include_directories(choral PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(choral PUBLIC cxx_std_20)
  set_target_properties(choral PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}  # before 1.0 every minor version may break the ABI
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/choral.map)
  target_link_options(choral PRIVATE
    LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/choral.map LINKER:--no-undefined LINKER:--exclude-libs,ALL)

  install(TARGETS choral EXPORT ChoralTargets COMPONENT library)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/choral DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library FILES_MATCHING PATTERN "*.h")
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/Choral)
  install(EXPORT ChoralTargets NAMESPACE Choral:: DESTINATION ${folder} COMPONENT library)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ChoralConfig.cmake.in ${PROJECT_BINARY_DIR}/ChoralConfig.cmake
    INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/ChoralConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/ChoralConfig.cmake ${PROJECT_BINARY_DIR}/ChoralConfigVersion.cmake
    DESTINATION ${folder} COMPONENT library)
  file(RELATIVE_PATH CHORAL_PREFIX_FROM_PC /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/choral.pc.in ${PROJECT_BINARY_DIR}/choral.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/choral.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
endfunction()
