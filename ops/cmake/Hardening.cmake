# Three interface targets; nothing is set directory-wide.
#   enc_warnings        the warning set; with ENC_WERROR they stop the build
#   enc_harden_exe      run-time hardening for daemons and tools
#   enc_harden_plugin   the same for what other programs dlopen (no -pie, symbols hidden)
# Each flag is probed, because gcc 12 and clang 14 differ.
include (CheckCCompilerFlag)
include (CheckLinkerFlag)

function (enc_add_flags target)
	foreach (flag ${ARGN})
		string (MAKE_C_IDENTIFIER "HAVE_CFLAG${flag}" have)
		check_c_compiler_flag ("${flag}" ${have})
		if (${have})
			target_compile_options (${target} INTERFACE "${flag}")
		endif ()
	endforeach ()
endfunction ()

function (enc_add_link_flags target)
	foreach (flag ${ARGN})
		string (MAKE_C_IDENTIFIER "HAVE_LDFLAG${flag}" have)
		check_linker_flag (C "${flag}" ${have})
		if (${have})
			target_link_options (${target} INTERFACE "${flag}")
		endif ()
	endforeach ()
endfunction ()

add_library (enc_warnings INTERFACE)
enc_add_flags (enc_warnings
	-Wall -Wextra -Wshadow -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
	-Wcast-qual -Wwrite-strings -Wpointer-arith -Wundef -Wvla -Wduplicated-cond -Wlogical-op
	-Wimplicit-fallthrough -Wtrampolines -Wbidi-chars=any -Wconversion -Wno-sign-conversion
	-Wno-missing-field-initializers
	-Werror=format-security -Werror=implicit-function-declaration
	-Werror=incompatible-pointer-types -Werror=int-conversion -Werror=return-type)
if (ENC_WERROR)
	enc_add_flags (enc_warnings -Werror)
endif ()

set (enc_common_flags
	-fstack-protector-strong -fstack-clash-protection
	-ftrivial-auto-var-init=zero -fzero-call-used-regs=used -fno-delete-null-pointer-checks
	-fno-strict-overflow -fno-strict-aliasing "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
# clang takes the other architecture's flag with a warning only, so the probe does not tell.
if (CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
	list (APPEND enc_common_flags -fcf-protection=full)
elseif (CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
	list (APPEND enc_common_flags -mbranch-protection=standard)
endif ()
if (CMAKE_BUILD_TYPE STREQUAL "Release")
	list (APPEND enc_common_flags -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif ()
set (enc_common_link -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)

add_library (enc_harden_exe INTERFACE)
enc_add_flags (enc_harden_exe ${enc_common_flags} -fPIE)
enc_add_link_flags (enc_harden_exe -pie ${enc_common_link})

add_library (enc_harden_plugin INTERFACE)
enc_add_flags (enc_harden_plugin ${enc_common_flags} -fPIC -fvisibility=hidden)
enc_add_link_flags (enc_harden_plugin ${enc_common_link})

# Libraries are linked into both kinds: PIC, the same run-time flags, no link flags.
add_library (enc_harden_lib INTERFACE)
enc_add_flags (enc_harden_lib ${enc_common_flags} -fPIC)

# enc_library (NAME LIBS a b SOURCES x.c y.c): a static library of this project.
function (enc_library name)
	cmake_parse_arguments (ARG "" "" "LIBS;SOURCES" ${ARGN})
	add_library (${name} STATIC ${ARG_SOURCES})
	target_link_libraries (${name} PRIVATE enc_warnings enc_harden_lib PUBLIC ${ARG_LIBS})
	if (ENC_POINTS)
		target_compile_definitions (${name} PRIVATE ENC_POINTS=1)
	endif ()
endfunction ()

# enc_program (NAME LIBS a b SOURCES x.c y.c [DESTINATION dir]): an executable of this project.
function (enc_program name)
	cmake_parse_arguments (ARG "" "DESTINATION" "LIBS;SOURCES" ${ARGN})
	add_executable (${name} ${ARG_SOURCES})
	target_link_libraries (${name} PRIVATE enc_warnings enc_harden_exe ${ARG_LIBS})
	if (ENC_POINTS)
		target_compile_definitions (${name} PRIVATE ENC_POINTS=1)
	endif ()
	if (NOT ARG_DESTINATION)
		set (ARG_DESTINATION "${CMAKE_INSTALL_SBINDIR}")
	endif ()
	install (TARGETS ${name} RUNTIME DESTINATION "${ARG_DESTINATION}")
endfunction ()
