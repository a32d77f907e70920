#!/bin/sh
# Patroni calls it once, with the address of a new primary: makes our database and the roles of the services.
set -e
psql --set=ON_ERROR_STOP=1 --dbname="$1" --command="CREATE DATABASE gpusteward"
for file in /docker-entrypoint-initdb.d/*.sql; do
    psql --set=ON_ERROR_STOP=1 --dbname="$1 dbname=gpusteward" --file="$file"
done
