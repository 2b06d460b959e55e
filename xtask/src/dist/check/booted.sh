# Runs in a booted Debian: installs the package, uses the service, and removes it.
dpkg --install /ifmatch.deb
ifmatch health --ready
before=$(systemctl show --property MainPID ifmatch)
systemctl reload ifmatch
ifmatch health --ready
test "$(systemctl show --property MainPID ifmatch)" = "$before"
systemctl restart ifmatch
systemctl --no-pager status ifmatch
dpkg --purge ifmatch
test -d /var/lib/ifmatch/bodies
echo passed
