#!/bin/sh
# check_seeded.sh PROGRAM BUG TEXT: the right way passes in silence, the wrong one is reported with TEXT.
program=$1 bug=$2 text=$3
output=$("$program" "$bug" right 2>&1) || {
    echo "$bug, done right, fails: $output"
    exit 1
}
if [ -n "$output" ]; then
    echo "$bug, done right, is reported: $output"
    exit 1
fi
if output=$("$program" "$bug" wrong 2>&1); then
    echo "$bug passes unnoticed"
    exit 1
fi
case $output in
*"$text"*) exit 0 ;;
esac
echo "$bug is reported without '$text': $output"
exit 1
