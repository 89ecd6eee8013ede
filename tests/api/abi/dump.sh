#!/bin/sh
# usage: dump.sh INCLUDE_DIR OUTPUT
# Writes the ABI that the header promises, as abidw sees it. To accept a change, together with ATTUNE_ABI_VERSION:
#   tests/api/abi/dump.sh include tests/api/abi/libattune.abi
set -eu
include=$(realpath "$1")
output=$(realpath "$2")
cd "$(dirname "$0")"
library=$(mktemp --suffix=.so)
trap 'rm -f "$library"' EXIT
gcc -std=c99 -g -O0 -fPIC -shared -I"$include" -Wl,-soname,libattune.so.1 interface.c -o "$library"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --type-id-style hash --out-file "$output" \
  "$library"
