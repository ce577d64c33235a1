# Runs inside the system of try_deploy.sh: what docs/deployment.md says of units and roles, then kill -9, a blocked loop, a stop.
port=$1
owner=postgresql://shop_owner:o@127.0.0.1:$port/shop
cd /opt/windlass
su postgres -c "psql -qp $port -c \"CREATE ROLE shop_owner LOGIN CREATEROLE PASSWORD 'o'\" -c 'CREATE DATABASE shop OWNER shop_owner'"
python3 -m venv /srv/shop/.venv
/srv/shop/.venv/bin/pip install -q '/opt/windlass[postgres,web,prometheus]'

useradd --system windlass
cp deploy/systemd/*.service /etc/systemd/system/
sed -i 's/^WatchdogSec=.*/WatchdogSec=4/' /etc/systemd/system/windlass-worker@.service
echo "WINDLASS_URL=postgresql://shop_worker:w@127.0.0.1:$port/shop" > shop.env
install -D -m 600 shop.env /etc/windlass/shop.env
systemctl daemon-reload

echo '-- the database has no user of that name yet: the unit starts, and is not ready'
systemctl enable -q --now --no-block windlass-worker@1 windlass-worker@2
sleep 3
[ "$(systemctl show -P ActiveState windlass-worker@1)" = activating ]
cd /srv/shop
WINDLASS_URL=$owner .venv/bin/windlass migrate app.worker > /dev/null
psql -q -v ON_ERROR_STOP=1 "$owner" -f /opt/windlass/deploy/postgres/roles.sql
psql -q "$owner" -c "CREATE ROLE shop_worker LOGIN PASSWORD 'w' IN ROLE windlass_worker"

seconds() { local began=$SECONDS; until eval "$2"; do [ $((SECONDS - began)) -lt 90 ] || { echo "not within 90 s: $1"; journalctl --no-pager -n 40; exit 1; }; sleep 0.5; done; echo "-- $1: $((SECONDS - began)) s"; }
main() { systemctl show -P MainPID "windlass-worker@$1"; }
seconds 'both workers are ready' 'systemctl is-active -q windlass-worker@1 windlass-worker@2'

killed=$(main 1)
kill -9 "$killed"
seconds 'a worker that was killed is replaced' '[ "$(main 1)" != "$killed" ] && systemctl is-active -q windlass-worker@1'

set -a; . /etc/windlass/shop.env; set +a
before="$(main 1) $(main 2)"
.venv/bin/windlass enqueue app.worker:block 3600
seconds 'a worker whose loop stands still is replaced' 'now="$(main 1) $(main 2)"; [ "$now" != "$before" ] && [[ $now != *"0"[[:space:]]* ]] && systemctl is-active -q windlass-worker@1 windlass-worker@2'

job=$(.venv/bin/windlass enqueue app.worker:welcome ann@example.org)
seconds 'a job is done' '.venv/bin/windlass jobs show '"$job"' | grep -q succeeded'
systemctl stop windlass-worker@1 windlass-worker@2
[ "$(systemctl show -P Result windlass-worker@1 windlass-worker@2 | sort -u | xargs)" = success ]
echo '-- both stopped by SIGTERM with success'
