# shellcheck shell=sh
# For those who look for a script to source: there is nothing to activate. The environment is the image's own, the same in
# `docker run`, `docker exec`, `sh -c`, a login shell and Kubernetes. This prints what of it matters and changes nothing.
(
    if [ "${VIRTUAL_ENV-}" = /opt/venv ]; then
        echo "Nothing to activate: the image's environment is set."
    else
        echo "This shell does not have the image's environment: start it as \`bash -l\`, or source /etc/profile.d/cannery.sh."
    fi
    python=$(command -v python) || python=
    echo "  python: ${python:-none on PATH}"
    [ -z "$python" ] || echo "  version: $("$python" --version 2>&1)"
    for name in VIRTUAL_ENV ASCEND_HOME_PATH ATB_HOME_PATH PYTHONPATH LD_PRELOAD; do
        eval "value=\${$name-}"
        echo "  $name: ${value:-not set}"
    done
)
