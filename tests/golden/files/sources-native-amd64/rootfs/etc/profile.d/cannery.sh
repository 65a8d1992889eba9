# Made by Cannery from the same table as the image's ENV: login shells get the same environment.
export PATH='/opt/venv/bin:/usr/local/python3.11.14/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
if [ -z "${VIRTUAL_ENV+set}" ]; then
    export ASCEND_TOOLKIT_HOME='/usr/local/Ascend/cann-8.5.0'
    export LD_LIBRARY_PATH='/usr/local/Ascend/lib64'
    export VIRTUAL_ENV='/opt/venv'
fi
