# What is needed to build against Slurm. Set before the first use, if the defaults do not fit:
#   SLURM_ROOT        prefix of an installed Slurm (libslurm, slurm/*.h); empty = the system's
#   SLURM_SOURCE      configured source tree of the same release, for job_submit only; ops/packages/slurm-headers makes it
#   SLURM_PLUGIN_DIR  where slurmctld and slurmd look for plugins
#
# Gives:
#   enc_libslurm            interface target: libslurm and its public headers
#   enc_slurm_plugin (NAME x KIND job_submit|spank SOURCES a.c [LIBS l]): builds NAME.so, which exports the entry points of that
#                           kind and nothing else (ops/cmake/slurm-KIND.map). A job_submit without SLURM_SOURCE is left out with a message:
#                           ENC_HAVE_SLURM_SOURCE says so beforehand.
set (SLURM_ROOT "" CACHE PATH "Prefix of the Slurm to build against; empty means the system's")
set (SLURM_SOURCE "/var/lib/enclave-build/slurm" CACHE PATH "Configured Slurm source tree (ops/packages/slurm-headers)")

find_path (SLURM_INCLUDE_DIR slurm/slurm.h HINTS "${SLURM_ROOT}/include")
find_library (SLURM_LIBRARY slurm HINTS "${SLURM_ROOT}/lib" "${SLURM_ROOT}/lib64")

if (SLURM_ROOT)
	set (enc_slurm_plugin_default "${SLURM_ROOT}/lib/slurm")
else ()
	set (enc_slurm_plugin_default "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/slurm-wlm")
endif ()
set (SLURM_PLUGIN_DIR "${enc_slurm_plugin_default}" CACHE PATH "Slurm's plugin folder")

if (SLURM_INCLUDE_DIR AND SLURM_LIBRARY AND NOT TARGET enc_libslurm)
	add_library (enc_libslurm INTERFACE)
	target_include_directories (enc_libslurm SYSTEM INTERFACE "${SLURM_INCLUDE_DIR}")
	target_link_libraries (enc_libslurm INTERFACE "${SLURM_LIBRARY}")
endif ()

set (ENC_HAVE_SLURM_SOURCE OFF)
if (EXISTS "${SLURM_SOURCE}/config.h" AND EXISTS "${SLURM_SOURCE}/src/slurmctld/slurmctld.h")
	# A plugin built for another release is refused by slurmctld, and its structs would not fit: better no plugin than that one.
	file (STRINGS "${SLURM_SOURCE}/slurm/slurm_version.h" enc_source_version REGEX "define SLURM_VERSION_NUMBER")
	file (STRINGS "${SLURM_INCLUDE_DIR}/slurm/slurm_version.h" enc_system_version REGEX "define SLURM_VERSION_NUMBER")
	if (enc_source_version STREQUAL enc_system_version)
		set (ENC_HAVE_SLURM_SOURCE ON)
	else ()
		message (WARNING "${SLURM_SOURCE} is of another release than libslurm; run ops/packages/slurm-headers")
	endif ()
endif ()

function (enc_slurm_plugin name)
	cmake_parse_arguments (ARG "" "KIND" "LIBS;SOURCES" ${ARGN})
	if (ARG_KIND STREQUAL "job_submit" AND NOT ENC_HAVE_SLURM_SOURCE)
		message (STATUS "${name} left out: no Slurm source tree (run ops/packages/slurm-headers)")
		return ()
	endif ()
	set (map "${CMAKE_SOURCE_DIR}/ops/cmake/slurm-${ARG_KIND}.map")
	add_library (${name} MODULE ${ARG_SOURCES})
	set_target_properties (${name} PROPERTIES PREFIX "" LINK_DEPENDS "${map}")
	if (ARG_KIND STREQUAL "job_submit")
		target_include_directories (${name} SYSTEM BEFORE PRIVATE "${SLURM_SOURCE}")
		target_compile_definitions (${name} PRIVATE HAVE_CONFIG_H=1)
	else ()
		target_include_directories (${name} SYSTEM PRIVATE "${SLURM_INCLUDE_DIR}")
	endif ()
	target_link_libraries (${name} PRIVATE enc_warnings enc_harden_plugin ${ARG_LIBS})
	# The map decides what is visible; libraries linked in stay hidden. On the sources, so that it comes after enc_harden_plugin's flag.
	set_property (SOURCE ${ARG_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -fvisibility=default)
	# Slurm's symbols are found in the program that loads the plugin, hence no -z defs.
	target_link_options (${name} PRIVATE "-Wl,--version-script=${map}" -Wl,--exclude-libs,ALL)
	install (TARGETS ${name} LIBRARY DESTINATION "${SLURM_PLUGIN_DIR}")
endfunction ()
