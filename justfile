# Short names of the usual commands; `just` is not required.

# Everything that CI runs.
ci:
    .ci/run

# Format, texts, lints, dependencies.
check:
    cargo xtask check

# Every test; `just test -p coswitch-policies` tests one package.
test *ARGS:
    cargo xtask test -- {{ARGS}}

demo:
    cargo xtask demo
