# Names for what is done most often. `just` is not needed: each is one command.

# What CI runs.
ci:
    .ci/run

# Format, lints, dependencies.
check:
    cargo xtask check

# Every test; `just test -p coswitch-policies` runs those of one package.
test *ARGS:
    cargo xtask test -- {{ARGS}}

demo:
    cargo xtask demo
