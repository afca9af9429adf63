# Run by tools/test-distributions --release in a bare tree of another distribution, where /penstock holds a release:
# sh in_bare_tree.sh archive|package|wheel. No compiler, no library of ours. Lines that begin with "says: " are shown.
set -eu
export LC_ALL=C.UTF-8 XDG_RUNTIME_DIR=/tmp
cd /penstock
for compiler in cc gcc g++ clang cmake nvcc; do
  if command -v $compiler; then echo "this tree is not bare: it has $compiler, from a run without --release; remove the tree's folder and run again"; exit 1; fi
done
glibc=$(ldd --version | sed -n '1s/.* //p')

case $1 in
  archive)
    mkdir -p archive
    tar -xf penstock-*-linux-*.tar.gz -C archive --strip-components=1
    archive/bin/penstock run bare.toml
    echo "says: glibc $glibc: $(archive/bin/penstock version | head -n 1): penstock run delivered its epoch"
    ;;
  package)
    dpkg -i penstock_*.deb
    (cd / && penstock run /penstock/bare.toml)
    dpkg -r penstock
    if [ -e /opt/penstock ]; then echo "dpkg -r left files in /opt/penstock"; exit 1; fi
    echo "says: glibc $glibc: installed, ran, removed"
    ;;
  wheel)
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3-venv
    python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if python3 -c 'import sys; sys.exit(sys.version_info >= (3, 11))'; then
      echo "says: its Python is $python, older than wheels are for"
      exit
    fi
    rm -rf env
    python3 -m venv env
    begin=$(date +%s)
    env/bin/pip install --quiet --no-index --find-links /penstock penstock
    env/bin/python first_batch.py bare.toml
    seconds=$(($(date +%s) - begin))
    env/bin/penstock version
    echo "says: glibc $glibc, Python $python: $seconds s from pip install to the first batch"
    [ $seconds -le 30 ]
    ;;
esac
